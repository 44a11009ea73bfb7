"""Mask runs: stretches of tokens under one rule, and what cutting documents does to them.

A document's mask is a list of (length, rule) whose lengths sum to its tokens. Laid end to end, the runs of all
documents are one list of rising borders over the flat token stream, so the runs under any range of tokens are
found by two binary searches, and all ranges are cut at once.
"""

import numpy as np

from astrai_data.ragged import Ragged, offsets_of


def clean_runs(lengths: Ragged, rules: Ragged, num_tokens: np.ndarray) -> tuple[Ragged, Ragged]:
    """Drop runs of length 0 and join runs of one rule that follow each other inside a document.

    Args:
        lengths: Ragged int32, run lengths, one row a document.
        rules: Ragged uint16, the rule of each run.
        num_tokens: int64 [n], tokens of each document.

    Raises:
        ValueError: runs that do not sum to their document's tokens.
    """
    run_lengths, run_rules, bounds = lengths.flat, rules.flat, lengths.bounds
    if not np.array_equal(np.diff(offsets_of(run_lengths)[bounds]), num_tokens):
        raise ValueError("mask runs do not sum to their document's tokens")
    filled = run_lengths > 0
    if not filled.all():
        run_lengths, run_rules, bounds = run_lengths[filled], run_rules[filled], offsets_of(filled)[bounds]
    new = _starts(run_rules, bounds)
    if not new.all():
        run_lengths = np.add.reduceat(run_lengths, np.flatnonzero(new), dtype=run_lengths.dtype)
        run_rules, bounds = run_rules[new], offsets_of(new)[bounds]
    return Ragged(run_lengths, bounds), Ragged(run_rules, bounds)


def cut_runs(lengths: Ragged, rules: Ragged, offsets: np.ndarray) -> tuple[Ragged, Ragged]:
    """The runs under each of many ranges that follow each other in the token stream.

    Runs of 5 and 20 tokens under the ranges 0..10 and 10..25 give 5 5 and 15.

    Args:
        lengths: Ragged int32, clean run lengths; all together they cover the stream.
        rules: Ragged uint16, the rule of each run.
        offsets: int64 [m + 1], borders of the ranges, never falling; range i is offsets[i] .. offsets[i + 1].

    Returns:
        (lengths int32, rules uint16) with one row a range; empty ranges have no runs.
    """
    borders = offsets_of(lengths.flat)
    filled = offsets[:-1] < offsets[1:]
    first = np.searchsorted(borders, offsets[:-1], side="right") - 1
    past = np.searchsorted(borders, offsets[1:], side="left")
    count = np.where(filled, past - first, 0)
    bounds = offsets_of(count)
    run = np.repeat(first - bounds[:-1], count) + np.arange(bounds[-1])
    begins = borders[run]
    begins[bounds[:-1][filled]] = offsets[:-1][filled]
    cut = np.diff(begins, append=offsets[-1])  # what is cut still covers the ranges, so each run ends where one begins
    return Ragged(cut.astype(np.int32), bounds), Ragged(rules.flat[run], bounds)


def _starts(rules: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Bool [runs]: whether a run is its document's first or has another rule than the one before it."""
    new = np.ones(len(rules), bool)
    new[1:] = rules[1:] != rules[:-1]
    first = bounds[:-1]
    new[first[first < len(rules)]] = True
    return new
