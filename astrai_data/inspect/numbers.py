"""Counts, shares and places as a reader writes them."""


def counted(count: int, noun: str) -> str:
    """`1 shard`, `2 shards`, `0 shards`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


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
