"""Caps: what is cut from a built sequence, and which documents are dropped for what is left.

`max_seq_len` keeps the start. `over_long` acts on documents longer than `max_packed_len`, before packing: `truncate`
keeps the end that `truncation_mode` names, `drop` drops, `split` leaves the cutting to the packer. `drop_untrained`
looks at what is left, document by document.
"""

from dataclasses import dataclass

import numpy as np

from astrai_data.build.strips import Strip
from astrai_data.config import PipelineConfig
from astrai_data.pack import Plan, Segments, gather
from astrai_data.ragged import Ragged


@dataclass(frozen=True)
class Capped:
    """`n` sequences after the caps.

    sequence: what is left; token_start: int64 [n], where it begins in the sequence as built; flags: uint8 [n], cut
    before and after; num_truncated: int64 [n] tokens cut off; dropped: record number -> reason.
    """

    sequence: Strip
    token_start: np.ndarray
    flags: np.ndarray
    num_truncated: np.ndarray
    dropped: dict[int, str]


def apply_caps(config: PipelineConfig, sequence: Strip, trained: np.ndarray, least: int) -> Capped:
    """Cut and drop.

    Args:
        config: its `preprocessing`.
        sequence: `n` built sequences.
        trained: bool, the flag of each mask rule.
        least: a sequence of fewer tokens after `max_seq_len` is dropped as `too_few_tokens`.
    """
    preprocessing, built = config.preprocessing, sequence.tokens.lengths
    length = built if preprocessing.max_seq_len is None else np.minimum(built, preprocessing.max_seq_len)
    dropped = dict.fromkeys(np.flatnonzero((length < least) & (built > 0)).tolist(), "too_few_tokens")
    begin, length, over_long = _fit(config, length)
    dropped |= dict.fromkeys(over_long.tolist(), "over_long")
    tokens, segments = _cut(sequence, begin, length)
    if preprocessing.drop_untrained:
        untrained = np.flatnonzero((segments.num_trained(trained) == 0) & (length > 0))
        dropped = dict.fromkeys(untrained.tolist(), "nothing_to_train") | dropped
    kept = Strip(tokens, segments.mask_lengths, segments.mask_rules, sequence.num_added)
    return Capped(kept, begin, segments.flags, built - length, dropped)


def _fit(config: PipelineConfig, length: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What `over_long` makes of sequences of the given lengths: (begin, length, rows to drop)."""
    preprocessing, capacity = config.preprocessing, config.preprocessing.max_packed_len
    begin, none = np.zeros(len(length), np.int64), np.empty(0, np.int64)
    if preprocessing.packing_strategy == "concat" or preprocessing.over_long == "split":
        return begin, length, none
    if preprocessing.over_long == "drop":
        return begin, length, np.flatnonzero(length > capacity)
    kept = np.minimum(length, capacity)
    return (length - kept) * (preprocessing.truncation_mode == "keep_end"), kept, none


def _cut(sequence: Strip, begin: np.ndarray, length: np.ndarray) -> tuple[Ragged, Segments]:
    """One piece of each sequence; cutting is what packing does, with a plan of one piece a row."""
    num_rows = len(length)
    number, zeros = np.arange(num_rows), np.zeros(num_rows, np.int64)
    flags = np.zeros(num_rows, np.uint8)
    runs = (sequence.run_lengths, sequence.run_rules)
    if (length == sequence.tokens.lengths).all():
        return sequence.tokens, Segments(number, length, number, zeros, flags, *runs)
    plan = Plan(number, begin, length, np.arange(num_rows + 1))
    return gather(sequence.tokens, *runs, zeros, number, flags, plan)
