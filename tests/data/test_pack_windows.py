"""Windows: every token of every document comes out once, in order, whatever batches it came in and however long."""

from itertools import pairwise

import numpy as np
import pytest

from astrai_data.build import DocumentBatch
from astrai_data.build.strips import of_one_rule
from astrai_data.ragged import Ragged
from astrai_data.run.windows import FEW_TOKENS, Windows

MOST = 2 * FEW_TOKENS
DOMAINS = ("a", None)


def batch(lengths: np.ndarray, begin: int) -> DocumentBatch:
    """Documents `begin` and following: domain by turns, tokens that tell the document."""
    n = len(lengths)
    number = begin + np.arange(n)
    tokens = np.repeat(number, lengths).astype(np.uint16)
    return DocumentBatch(
        input=np.zeros(n, np.int32),
        position=number,
        domain=(number % 2).astype(np.int32),
        domains=DOMAINS,
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
