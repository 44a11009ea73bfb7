"""What a store is, at a glance: one object for programs (`summary`), one page for people (`print_summary`).

Everything comes from the manifest and the ledger, so it costs the same for any size of store.
"""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from astrai_data.inspect.numbers import share
from astrai_data.inspect.printable import printable_cell
from astrai_data.ledger import BALANCES, Ledger
from astrai_data.store import TokenStore

WORDS = {"text_bytes": "text bytes", "from_text": "from text", "normalised": "normalised away"}
TRAINED_ARE_LABELS = "trained counts labels: flagged in loss_mask, and not the first token of a segment"


def summary(store: TokenStore) -> dict:
    """The summary as design.md §11 names its keys, JSON-ready.

    `fill` is the share of the rows' capacity that holds tokens (null where rows have none), `domains` and `splits`
    are lists of sums with their name in `domain` and `split`, `ledger` a list of its entries, and `rejects` the
    rejected records by reason, the commonest first.
    """
    manifest, ledger = store.manifest, store.table("ledger").to_pylist()
    return {
        "store_id": store.store_id,
        "format_version": manifest.format_version,
        "kind": manifest.kind,
        **manifest.totals,
        "fill": _fill(manifest.totals, manifest.packing),
        "columns": dict(manifest.columns),
        "storage_format": manifest.storage_format,
        "has_loss_mask": manifest.has_loss_mask,
        "mask_rules": [{"name": rule.name, "trained": rule.trained} for rule in manifest.mask_rules],
        "packing": dict(manifest.packing),
        "domains": [dict(sums) for sums in manifest.domains],
        "splits": [dict(sums) for sums in manifest.splits],
        "ledger": ledger,
        "rejects": _rejects(ledger),
        "tokenizer": {"ids_sha256": manifest.ids_sha256, "template_sha256": manifest.template_sha256},
        "config_hash": manifest.config_hash,
        "plan_hash": manifest.plan_hash,
    }


def print_summary(facts: dict, name: str, console: Console) -> None:
    """Print what `summary` gave for the store that the user calls `name`."""
    console.print(Text(printable_cell(name), style="bold"))
    _print_pairs(console, _identity(facts))
    console.print()
    _print_pairs(console, _totals(facts))
    for key in ("domain", "split"):
        console.print()
        console.print(_sums_table(key, facts[f"{key}s"]))
    console.print()
    _print_pairs(console, ledger_lines(facts["ledger"]))
    if facts["rejects"]:
        console.print()
        _print_pairs(console, [(f"rejected {entry['reason']}", f"{entry['count']:,}") for entry in facts["rejects"]])
    console.print()
    _print_pairs(console, [("try next", command) for command in next_commands(name)])


def ledger_lines(entries: list[dict]) -> list[tuple[str, str]]:
    """The ledger's balances, summed over domains, as (name, sentence): "100 read = 90 kept + 10 filtered (...)"."""
    ledger = Ledger.from_rows([list(entry.values()) for entry in entries])
    lines = []
    for balance, (left, right) in BALANCES.items():
        sides = [[_entry(ledger, balance, word) for word in words] for words in (left, right)]
        if any(map(any, sides)):
            shown = [" + ".join(filter(None, side)) or "0" for side in sides]
            note = f"; {TRAINED_ARE_LABELS}" if balance == "tokens" else ""
            lines.append((WORDS.get(balance, balance), " = ".join(shown) + note))
    return lines


def next_commands(name: str) -> list[str]:
    """Three commands that go on from a summary."""
    query = "select source, position, reason, message from rejects"
    return [
        f"astrai inspect {name} --show 3",
        f'astrai inspect {name} --sql "{query}"',
        f"astrai inspect {name} --verify",
    ]


def _fill(totals: dict[str, int], packing: dict) -> float | None:
    slots = totals["num_rows"] * (packing["max_packed_len"] or 0)
    return totals["num_tokens"] / slots if slots else None


def _rejects(ledger: list[dict]) -> list[dict]:
    counts: dict[str, int] = {}
    for entry in ledger:
        if (entry["balance"], entry["what"]) == ("records", "rejected"):
            counts[entry["reason"]] = counts.get(entry["reason"], 0) + entry["count"]
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"reason": reason, "count": count} for reason, count in ordered]


def _identity(facts: dict) -> list[tuple[str, str]]:
    packing = facts["packing"]
    capacity = f", {packing['max_packed_len']:,} tokens a row" if packing["max_packed_len"] else ""
    columns = ", ".join(f"{name} ({dtype})" for name, dtype in facts["columns"].items())
    return [
        ("store id", facts["store_id"]),
        ("tokenizer", facts["tokenizer"]["ids_sha256"]),
        ("pipeline", facts["config_hash"]),
        ("packing", f"{packing['strategy']}{capacity}"),
        ("columns", f"{columns}, stored as {facts['storage_format']}"),
    ]


def _totals(facts: dict) -> list[tuple[str, str]]:
    names = ("documents", "segments", "rows", "shards")
    pairs = [(name, f"{facts[f'num_{name}']:,}") for name in names]
    pairs.append(("tokens", f"{facts['num_tokens']:,}, {share(facts['num_trained'], facts['num_tokens'])} trained"))
    slots = facts["num_rows"] * (facts["packing"]["max_packed_len"] or 0)
    return pairs + ([("fill", share(facts["num_tokens"], slots, decimals=2))] if slots else [])


def _sums_table(key: str, sums: list[dict]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(key)
    for title in ("documents", "rows", "tokens", "trained"):
        table.add_column(title, justify="right")
    for entry in sums:
        name = "(none)" if entry[key] is None else printable_cell(entry[key])
        numbers = [f"{entry[f'num_{title}']:,}" for title in ("documents", "rows", "tokens")]
        table.add_row(Text(name), *numbers, share(entry["num_trained"], entry["num_tokens"]))
    return table


def _print_pairs(console: Console, pairs: list[tuple[str, str]]) -> None:
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        line = Text(f"{printable_cell(name):<{width}}  ", style="dim")
        console.print(line.append(Text(printable_cell(value), style="default")), soft_wrap=True)


def _entry(ledger: Ledger, balance: str, word: str) -> str:
    total = ledger.total(balance, word)
    reasons = [(reason, ledger.total(balance, word, reason)) for reason in _reasons(ledger, balance, word)]
    reasons = sorted((pair for pair in reasons if pair[0]), key=lambda pair: -pair[1])
    detail = f" ({', '.join(f'{reason} {count:,}' for reason, count in reasons)})" if reasons else ""
    return f"{total:,} {WORDS.get(word, word)}{detail}" if total else ""


def _reasons(ledger: Ledger, balance: str, word: str) -> list[str]:
    return sorted({row[3] for row in ledger.to_rows() if (row[0], row[2]) == (balance, word)})
