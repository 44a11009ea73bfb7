"""Strips: what one step contributes to every record of a chunk, as ragged columns.

A built sequence is its strips joined record by record: BOS, a section's tokens, what the post-processor puts around
them, EOS. A record that a strip does not touch has an empty row in it. Joining copies each token once.
"""

from dataclasses import dataclass, replace

import numpy as np

from astrai_data.ragged import Ragged


@dataclass(frozen=True)
class Strip:
    """Rows for `n` records: `tokens`, mask runs (`run_lengths` int32, `run_rules` uint16), `num_added` int64 [n].

    Tokens are int32 until joined, then as they are stored. `num_added` counts the ids that stand for no text.
    """

    tokens: Ragged
    run_lengths: Ragged
    run_rules: Ragged
    num_added: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, rows: np.ndarray) -> "Strip":
        """The given rows in the given order."""
        return Strip(
            self.tokens.take(rows),
            self.run_lengths.take(rows),
            self.run_rules.take(rows),
            self.num_added[rows],
        )


def of_one_rule(tokens: Ragged, rule: int, *, added: bool = False) -> Strip:
    """A strip whose every token belongs to `rule`."""
    lengths = tokens.lengths
    some = lengths > 0
    run_lengths = Ragged.from_lengths(lengths[some].astype(np.int32), some)
    run_rules = Ragged(np.full(len(run_lengths.values), rule, np.uint16), run_lengths.offsets)
    return Strip(tokens, run_lengths, run_rules, lengths if added else np.zeros(len(tokens), np.int64))


def of_constant(ids: tuple[int, ...], present: np.ndarray, rule: int) -> Strip:
    """The same added `ids` for every record that is `present` (bool [n])."""
    values = np.tile(np.array(ids, np.int32), int(present.sum()))
    return of_one_rule(Ragged.from_lengths(values, present * len(ids)), rule, added=True)


def join(strips: list[Strip], dtype: np.dtype) -> Strip:
    """All strips, one after the other inside each record, with tokens of `dtype`, which holds every id."""
    strips = [strip for strip in strips if len(strip.tokens.flat)] or strips[:1]
    if len(strips) == 1:
        return replace(strips[0], tokens=strips[0].tokens.astype(dtype))
    return Strip(
        _interleave([strip.tokens for strip in strips], dtype),
        _interleave([strip.run_lengths for strip in strips], np.int32),
        _interleave([strip.run_rules for strip in strips], np.uint16),
        sum(strip.num_added for strip in strips),
    )


def _interleave(parts: list[Ragged], dtype: np.dtype | type) -> Ragged:
    """Row `i` of the result is row `i` of every part, joined."""
    num_rows, num_parts = len(parts[0]), len(parts)
    order = np.arange(num_rows)[:, None] + np.arange(num_parts) * num_rows
    taken = Ragged.concat(parts, dtype).take(order.ravel())
    return Ragged(taken.values, taken.offsets[::num_parts])
