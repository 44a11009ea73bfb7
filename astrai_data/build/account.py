"""The builder's ledger entries: what became of every record, text byte and token of a chunk, domain by domain.

Trained and masked tokens are entered when their segments are known, after packing.
"""

from collections import Counter

import numpy as np

from astrai_data.build.draft import Draft
from astrai_data.ledger import Ledger


def account(
    ledger: Ledger,
    draft: Draft,
    num_truncated: np.ndarray,
    lost: dict[int, tuple[str, str]],
    domain: np.ndarray,
    domains: tuple[str | None, ...],
) -> None:
    """Enter a chunk of `n` records.

    Args:
        ledger: where to.
        draft: the chunk as built.
        num_truncated: int64 [n], tokens the caps cut off.
        lost: record number -> ("rejected" | "filtered", reason).
        domain: int32 [n], number of each record's domain in `domains`.
        domains: their names.
    """
    num_tokens, num_added = draft.sequence.tokens.lengths, draft.sequence.num_added
    kept = np.ones(len(domain), bool)
    kept[list(lost)] = False
    for number, name in enumerate(domains):
        here = domain == number
        ledger.add("records", name, "read", here.sum())
        ledger.add("records", name, "kept", (here & kept).sum())
        ledger.add("text_bytes", name, "read", draft.num_bytes[here].sum())
        ledger.add("text_bytes", name, "kept", draft.num_bytes[here & kept].sum())
        ledger.add("tokens", name, "from_text", (num_tokens - num_added)[here].sum())
        ledger.add("tokens", name, "added", num_added[here].sum())
        ledger.add("tokens", name, "truncated", num_truncated[here & kept].sum())
    _account_lost(ledger, draft, lost, [domains[number] for number in domain[list(lost)].tolist()])


def _account_lost(ledger: Ledger, draft: Draft, lost: dict[int, tuple[str, str]], names: list[str | None]) -> None:
    num_tokens = draft.sequence.tokens.lengths
    entries: Counter[tuple[str, str | None, str, str]] = Counter()
    for (row, (what, reason)), name in zip(lost.items(), names, strict=True):
        entries["records", name, what, reason] += 1
        entries["text_bytes", name, "dropped", reason] += int(draft.num_bytes[row])
        entries["tokens", name, "dropped", reason] += int(num_tokens[row])
    for (balance, name, what, reason), count in entries.items():
        ledger.add(balance, name, what, count, reason)
