"""Counts, sizes, shares and places as a reader writes them."""


def counted(count: int, noun: str) -> str:
    """`1 shard`, `2 shards`, `0 shards`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(num_bytes: int) -> str:
    """`999 B`, `23.4 kB`, `156.6 MB`, `2.0 GB`: powers of 1,000."""
    amount = float(num_bytes)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} GB"


def share(part: int, whole: int, decimals: int = 1) -> str:
    """`part / whole` in per cent, rounded; 100 and 0 are said only of all and of nothing.

    99.96 % with one decimal is `99.9%`, not `100.0%`; 0.04 % is `0.1%`.
    """
    if not whole:
        return "none"
    units = 100 * 10**decimals
    rounded = (2 * part * units + whole) // (2 * whole)
    if 0 < part < whole:
        rounded = min(max(rounded, 1), units - 1)
    return f"{rounded / 10**decimals:.{decimals}f}%"


def place(source: str, position: int, file_format: str) -> str:
    """Where a record lies: `chat.jsonl at byte 2,581`, and by its number `chat.parquet at 12`."""
    unit = "byte " if file_format == "jsonl" else ""
    return f"{source} at {unit}{position:,}"
