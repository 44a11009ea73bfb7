"""Windows: every token of every document comes out once, in order, whatever batches it came in and however long."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from astrai_data.build import DocumentBatch
from astrai_data.build.strips import of_one_rule
from astrai_data.ragged import Ragged
from astrai_data.run.windows import FEW_TOKENS, Windows

MOST = 2 * FEW_TOKENS
DOMAINS = ("a", None)


def batch(lengths: np.ndarray, begin: int, domains: tuple = DOMAINS) -> DocumentBatch:
    """Documents `begin` and following: domains by turns, tokens that tell the document."""
    n = len(lengths)
    number = begin + np.arange(n)
    tokens = np.repeat(number, lengths).astype(np.uint16)
    return DocumentBatch(
        input=np.zeros(n, np.int32),
        position=number,
        domain=(number % len(domains)).astype(np.int32),
        domains=domains,
        validation=np.zeros(n, bool),
        text_hash=bytes(16 * n),
        text_bytes=lengths,
        meta=None,
        sequence=of_one_rule(Ragged.from_lengths(tokens, lengths), 0),
        token_start=np.zeros(n, np.int64),
        flags=np.zeros(n, np.uint8),
    )


def closed(lengths: np.ndarray, num_batches: int) -> list[tuple]:
    """(domain, documents, their lengths, tokens) of each window, in closing order."""
    windows, found = Windows(MOST), []
    borders = np.linspace(0, len(lengths), num_batches + 1).astype(int)

    def keep(window):
        domain, columns = window.domain, window.release()
        found.append((domain, columns.document.tolist(), columns.tokens.lengths.tolist(), columns.tokens.flat))

    for begin, end in pairwise(borders.tolist()):
        for window in windows.add(batch(lengths[begin:end], begin)):
            keep(window)
    for window in windows.rest():
        keep(window)
    return found


@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param(np.full(40, 100_000), id="beyond few"),
        pytest.param(np.array([5, 6, MOST + 12_345, 7, 0, MOST - 5, 3, 3 * MOST, 9]), id="longer than a window"),
        pytest.param(np.array([0, 0, 1, 0]), id="hardly any"),
        pytest.param(np.random.default_rng(0).integers(0, 60_000, 300), id="mixed"),
    ],
)
def test_every_token_comes_out_in_order(lengths):
    for num_batches in (1, 3, len(lengths)):
        seen = {domain: [] for domain in DOMAINS}
        for domain, documents, window_lengths, tokens in closed(lengths, num_batches):
            assert window_lengths == lengths[documents].tolist()
            np.testing.assert_array_equal(tokens, np.repeat(documents, window_lengths))
            assert sum(window_lengths[:-1]) < MOST
            seen[domain] += documents
        assert seen == {"a": list(range(0, len(lengths), 2)), None: list(range(1, len(lengths), 2))}


def test_windows_do_not_depend_on_batches():
    lengths = np.random.default_rng(1).integers(0, 60_000, 300)
    ways = [[documents for _, documents, _, _ in closed(lengths, num_batches)] for num_batches in (1, 7, 300)]
    assert ways[0] == ways[1] == ways[2]
    assert len(ways[0]) > 3


def closed_one_by_one(lengths: list[int], domains: tuple, most: int, most_a_task: int) -> list[list[int]]:
    """The documents of each window in closing order, by the rule in words."""
    waiting: dict[str, list[int]] = {}
    tokens = Counter()
    found = []
    for document, length in enumerate(lengths):
        domain = domains[document % len(domains)]
        waiting.setdefault(domain, []).append(document)
        tokens[domain] += length
        if tokens[domain] < most and tokens.total() < most_a_task:
            continue
        if tokens[domain] < most:
            domain = max(sorted(waiting), key=tokens.__getitem__)
        found.append(waiting.pop(domain))
        del tokens[domain]
    return found + [waiting[domain] for domain in sorted(waiting)]


@pytest.mark.parametrize("most", [1, 50, 400, 5_000])
@pytest.mark.parametrize("num_domains", [1, 7, 90])
def test_a_window_closes_when_it_or_the_task_is_full(most, num_domains, monkeypatch):
    monkeypatch.setattr("astrai_data.run.windows.MOST_TOKENS_A_TASK", 1_000)
    lengths = np.random.default_rng(most).choice([0, 1, 9, 30, 200, 1_500], 400, p=[0.2, 0.2, 0.2, 0.2, 0.19, 0.01])
    domains = tuple(f"domain {number:02}" for number in range(num_domains))
    windows, found = Windows(most), []
    for begin in range(0, 400, 160):
        part = batch(lengths[begin : begin + 160], begin, domains)
        found += [window.release().document.tolist() for window in windows.add(part)]
    found += [window.release().document.tolist() for window in windows.rest()]
    assert found == closed_one_by_one(lengths.tolist(), domains, most, 1_000)
