"""The ledger: four balances that must close exactly, per domain, or the run fails.

    records     read = kept + filtered + duplicate + rejected + deleted
    text_bytes  read = kept + normalised + dropped
    tokens      from_text + added = trained + masked + truncated + dropped
    slots       slots = tokens + padding            (only where rows have a capacity)

An entry is (balance, domain, what, reason) -> count. `what` is one of the words above; `reason` says why (a filter's
name, a rejection's reason, a mask rule) and is "" where there is only one.
"""

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from astrai_data.errors import RunError

BALANCES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "records": (("read",), ("kept", "filtered", "duplicate", "rejected", "deleted")),
    "text_bytes": (("read",), ("kept", "normalised", "dropped")),
    "tokens": (("from_text", "added"), ("trained", "masked", "truncated", "dropped")),
    "slots": (("slots",), ("tokens", "padding")),
}

SCHEMA = pa.schema(
    [
        pa.field("balance", pa.string(), nullable=False),
        pa.field("domain", pa.string()),
        pa.field("what", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)


class Ledger:
    """Counts of what came in and where it went."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str | None, str, str]] = Counter()

    def add(self, balance: str, domain: str | None, what: str, count: int, reason: str = "") -> None:
        """Enter `count` (0 leaves no trace) under (balance, domain, what, reason)."""
        left, right = BALANCES[balance]
        if what not in left + right:
            raise KeyError(f"{balance} has no entry {what!r}")
        if count:
            self._counts[balance, domain, what, reason] += int(count)

    def merge(self, other: "Ledger") -> None:
        """Add every entry of `other` to this ledger."""
        self._counts.update(other._counts)

    def total(self, balance: str, what: str, reason: str | None = None) -> int:
        """The sum over domains of one entry, for one reason or for all."""
        return sum(
            count for (b, _, w, r), count in self._counts.items() if b == balance and w == what and reason in (None, r)
        )

    def check(self, where: object = None) -> None:
        """Raise `RunError` if any balance of any domain does not close."""
        sums: dict[tuple[str, str | None], list[int]] = {}
        for (balance, domain, what, _), count in self._counts.items():
            sums.setdefault((balance, domain), [0, 0])[what in BALANCES[balance][1]] += count
        for (balance, domain), (came, went) in sums.items():
            if came != went:
                left, right = BALANCES[balance]
                raise RunError(
                    f"the ledger does not balance: {balance} of domain {domain!r}",
                    where=where,
                    got=f"{' + '.join(left)} = {came:,}, {' + '.join(right)} = {went:,}",
                    wanted="equal sums",
                    hint="this is a defect of AstrAI, not of your data; please report it with the configuration",
                )

    def to_rows(self) -> list[list]:
        """Sorted [balance, domain, what, reason, count] rows; `from_rows` reads them back."""
        entries = [[*key, count] for key, count in self._counts.items()]
        return sorted(entries, key=lambda row: (row[0], row[1] is not None, row[1] or "", row[2], row[3]))

    @classmethod
    def from_rows(cls, rows: Iterable[list]) -> "Ledger":
        """A ledger from what `to_rows` gave."""
        ledger = cls()
        for balance, domain, what, reason, count in rows:
            ledger.add(balance, domain, what, count, reason)
        return ledger

    def to_table(self) -> pa.Table:
        """Arrow table with `SCHEMA`, one line an entry."""
        columns = list(zip(*self.to_rows(), strict=True)) or [[] for _ in SCHEMA]
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
