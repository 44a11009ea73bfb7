"""Flat windows: no token and no label lost (spec/data.md §13.2, weakness 40; acceptance cases 44, 45, 51, 52)."""

import pickle
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.load import FlatWindows, LoadError, PackedLoader
from tests.data.loading import labels_of, numbered, plain, take, write_store


def twin(documents: list, begin: int, end: int) -> dict:
    """One window, token by token: labels from the whole documents, borders also at the window's ends."""
    labels = [label for ids, mask in documents for label in labels_of(ids, mask)]
    ids = [token for ids, _ in documents for token in ids]
    starts = {0, *np.cumsum([len(ids) for ids, _ in documents]).tolist()}
    borders = sorted({begin, end} | {start for start in starts if begin < start < end})
    lengths = np.diff(borders).tolist()
    return {
        "input_ids": ids[begin:end],
        "labels": labels[begin:end],
        "position_ids": [t for length in lengths for t in range(length)],
        "cu_seqlens": [border - begin for border in borders],
        "max_seqlen": max(lengths),
    }


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    cut=st.integers(0, 12),
    window=st.integers(1, 40),
    stride=st.none() | st.integers(1, 50),
)
@settings(max_examples=30, deadline=None)
def test_a_window_token_by_token(tmp_path_factory, lengths, cut, window, stride):
    documents = numbered(lengths)
    tasks = [part for part in (documents[:cut], documents[cut:]) if part]
    store = write_store(tmp_path_factory.mktemp("load") / "store", tasks, strategy="simple", capacity=None)
    windows = FlatWindows(store, window, stride)
    loader = PackedLoader(store, window=window, stride=stride, rows_per_batch=1, seed=0, shuffle=False)
    for number, batch in enumerate(take(loader, len(windows))):
        begin = number * windows.stride
        assert batch == twin(documents, begin, min(begin + window, store.num_tokens))
    assert loader.epoch == 1


@pytest.mark.parametrize("window", [1, 7, 16, 1000])
@pytest.mark.parametrize("strategy", ["simple", "concat", "bfd"])
def test_an_epoch_has_every_token_and_every_label(tmp_path, strategy, window):
    store = write_store(tmp_path / "store", [numbered([5, 16, 1, 33]), numbered([9, 2], 1000)], strategy=strategy)
    loader = PackedLoader(store, window=window, rows_per_batch=3, seed=1)
    batches = take(loader, loader.batches_per_epoch)
    stream = store.slice(0, store.num_tokens)["sequence"].tolist()
    assert sorted(chain(*(batch["input_ids"] for batch in batches))) == sorted(stream)
    assert sum(label != -100 for batch in batches for label in batch["labels"]) == store.num_trained


@pytest.mark.parametrize(
    ("tokens", "window", "stride", "number", "last"),
    [
        (200, 64, 64, 4, (192, 200)),
        (200, 64, 32, 6, (160, 200)),
        (64, 64, 64, 1, (0, 64)),
        (65, 64, 64, 2, (64, 65)),
        (129, 64, 64, 3, (128, 129)),
        (10, 4, 2, 4, (6, 10)),
        (9, 4, 8, 2, (8, 9)),
        (30, 64, 64, 1, (0, 30)),
    ],
)
def test_the_tail_is_a_window(tmp_path, tokens, window, stride, number, last):
    """Case 44 with the tail kept (weakness 40)."""
    store = write_store(tmp_path / "store", [numbered([tokens])], strategy="simple", capacity=None)
    windows = FlatWindows(store, window, stride)
    assert len(windows) == number
    assert windows.read(np.array([number - 1])).input_ids.tolist() == list(range(*last))


def test_case_51(tmp_path):
    store = write_store(tmp_path / "store", [[(list(range(10)), [1] * 10)]], strategy="simple", capacity=None)
    batch = FlatWindows(store, 4).read(np.array([1]))
    assert (batch.input_ids.tolist(), batch.labels.tolist()) == ([4, 5, 6, 7], [5, 6, 7, 8])
    assert FlatWindows(store, 4, 3).read(np.array([1])).input_ids.tolist() == [3, 4, 5, 6]


def test_case_52(tmp_path):
    """A document's second window begins at position 0 (cases/data.md, 22); the store's own positions run on."""
    documents = [([10, 11, 12, 13, 14], [0, 0, 1, 1, 1]), ([15, 16, 17, 18, 19], [0, 0, 1, 1, 1])]
    store = write_store(tmp_path / "store", [documents], strategy="simple", capacity=None)
    first, second = (FlatWindows(store, 4).read(np.array([sample])) for sample in (0, 1))
    assert (first.labels != -100).tolist() == [False, True, True, True]
    assert (second.labels != -100).tolist() == [False, False, True, True]
    assert (first.position_ids.tolist(), second.position_ids.tolist()) == ([0, 1, 2, 3], [0, 0, 1, 2])
    assert second.cu_seqlens.tolist() == [0, 1, 4]
    assert store.slice(4, 8, ("position_ids",))["position_ids"].tolist() == [4, 0, 1, 2]


@pytest.mark.parametrize("mode", ["continuous", "none"])
def test_positions_run_on_through_a_window(tmp_path, mode):
    store = write_store(tmp_path / "store", [numbered([3, 6])], strategy="simple", capacity=None, mode=mode)
    batch = plain(next(PackedLoader(store, window=5, rows_per_batch=2, seed=0, shuffle=False)))
    assert batch["position_ids"] == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert batch["cu_seqlens"] == [0, 3, 5, 9]


def test_windows_pickle_as_an_address(tmp_path):
    windows = FlatWindows(write_store(tmp_path / "store", [numbered([30])]), 8, 4)
    windows.read(np.arange(2))
    data = pickle.dumps(windows)
    assert len(data) < 600 + len(str(tmp_path))
    assert pickle.loads(data).state_dict() == {"kind": "windows", "window": 8, "stride": 4}


@pytest.mark.parametrize("options", [{"window": 0}, {"window": 4, "stride": 0}, {"stride": 4}])
def test_settings_that_make_no_windows(tmp_path, options):
    store = write_store(tmp_path / "store", [numbered([30])])
    with pytest.raises(LoadError, match=r"window|stride"):
        PackedLoader(store, rows_per_batch=1, seed=0, **options)
