"""Packed rows as batches: labels, borders, positions (cases/data.md, 14, 15, 17, 18, 20, 22)."""

from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.load import PackedLoader, PackedRows
from astrai_data.store import TokenStore
from tests.data.loading import labels_of, numbered, plain, take, write_store


def twin(store: TokenStore, rows: list[int], mode: str = "doc_reset") -> dict:
    """The batch of the given rows, token by token."""
    batch = {"input_ids": [], "labels": [], "position_ids": [], "cu_seqlens": [0], "max_seqlen": 0}
    for row in map(store.row, rows):
        ids, mask, at = row.sequence.tolist(), row.loss_mask.tolist(), 0
        for length in filter(None, row.segment_lengths.tolist()):
            batch["input_ids"] += ids[at : at + length]
            batch["labels"] += labels_of(ids[at : at + length], mask[at : at + length])
            batch["position_ids"] += [t if mode == "doc_reset" else at + t for t in range(length)]
            batch["cu_seqlens"].append(batch["cu_seqlens"][-1] + length)
            batch["max_seqlen"] = max(batch["max_seqlen"], length)
            at += length
    return batch


@pytest.mark.parametrize("strategy", ["simple", "bfd", "bfd_split", "concat"])
@pytest.mark.parametrize("mode", ["doc_reset", "continuous", "none"])
def test_a_batch_is_its_rows_token_by_token(tmp_path, strategy, mode):
    tasks = [numbered([5, 16, 1, 3, 40, 7]), numbered([2, 9, 4], first=1000)]
    store = write_store(tmp_path / "store", tasks, strategy=strategy, mode=mode)
    for rows_per_batch in (1, 3, 100):
        loader = PackedLoader(store, rows_per_batch=rows_per_batch, seed=0, shuffle=False)
        for number, batch in enumerate(take(loader, loader.batches_per_epoch)):
            first = number * rows_per_batch
            rows = list(range(first, min(first + rows_per_batch, store.num_rows)))
            assert batch == twin(store, rows, mode)


@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=20), seed=st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_an_epoch_trains_what_the_store_says(tmp_path_factory, lengths, seed):
    store = write_store(tmp_path_factory.mktemp("load") / "store", [numbered(lengths)], strategy="bfd_split")
    loader = PackedLoader(store, rows_per_batch=2, seed=seed)
    batches = take(loader, loader.batches_per_epoch)
    assert sorted(chain(*(batch["input_ids"] for batch in batches))) == list(range(sum(lengths)))
    assert sum(label != -100 for batch in batches for label in batch["labels"]) == store.num_trained
    for batch in batches:
        assert all(label in (-100, token + 1) for token, label in zip(batch["input_ids"], batch["labels"], strict=True))


def test_dtypes_and_shapes(tmp_path):
    store = write_store(tmp_path / "store", [numbered([5, 4, 3])])
    batch = next(PackedLoader(store, rows_per_batch=1, seed=0))
    assert {name: batch[name].dtype for name in ("input_ids", "labels", "position_ids", "cu_seqlens")} == {
        "input_ids": torch.int64,
        "labels": torch.int64,
        "position_ids": torch.int64,
        "cu_seqlens": torch.int32,
    }
    assert type(batch["max_seqlen"]) is int
    assert all(batch[name].shape == (12,) for name in ("input_ids", "labels", "position_ids"))
    assert all(value.is_contiguous() for value in batch.values() if not isinstance(value, int))


def test_the_first_label_of_a_segment_is_never_trained(tmp_path):
    """Two documents in one row: the border's label is dead, and the shift is made once (14)."""
    store = write_store(tmp_path / "store", [[([10, 11, 12], [1, 1, 1]), ([20, 21], [1, 1])]], capacity=5)
    batch = plain(next(PackedLoader(store, rows_per_batch=1, seed=0)))
    assert batch["labels"] == [11, 12, -100, 21, -100]
    assert batch["cu_seqlens"] == [0, 3, 5]


def test_the_first_answer_token_is_trained(tmp_path):
    store = write_store(tmp_path / "store", [[([1, 2, 3, 4], [0, 0, 1, 1])]], capacity=5)
    assert plain(next(PackedLoader(store, rows_per_batch=1, seed=0)))["labels"] == [-100, 3, 4, -100]


def test_long_documents_fill_rows_exactly(tmp_path):
    """Window 13, documents of 14, 27 and 40 tokens (15); each row begins at position 0 and counts on (22)."""
    store = write_store(tmp_path / "store", [numbered([14, 27, 40])], strategy="concat", capacity=13)
    loader = PackedLoader(store, rows_per_batch=1, seed=0, shuffle=False)
    for batch in take(loader, loader.batches_per_epoch):
        assert batch["cu_seqlens"][-1] == len(batch["input_ids"]) == len(batch["position_ids"])
        steps = np.diff(batch["position_ids"])
        assert batch["position_ids"][0] == 0
        assert set(np.flatnonzero(steps != 1) + 1) == set(batch["cu_seqlens"][1:-1])
    assert loader.batches_per_epoch == 7
    assert len(batch["input_ids"]) == 81 - 6 * 13


@pytest.mark.parametrize("num_segments", [1, 10, 48, 49, 50])
def test_cu_seqlens_has_room_for_both_ends(tmp_path, num_segments):
    """And a short row has no pad tail that could become segments (17, 20)."""
    store = write_store(tmp_path / "store", [numbered([2] * num_segments)], capacity=128)
    batch = plain(next(PackedLoader(store, rows_per_batch=1, seed=0)))
    assert batch["cu_seqlens"] == list(range(0, 2 * num_segments + 1, 2))
    assert len(batch["input_ids"]) == 2 * num_segments


def test_empty_documents_are_no_segments(tmp_path):
    store = write_store(tmp_path / "store", [[([], []), ([7, 8], [1, 1]), ([], [])]], strategy="simple", capacity=None)
    assert store.num_segments == 3
    batch = PackedRows(store).read(np.arange(3))
    assert batch.cu_seqlens.tolist() == [0, 2]
    assert batch.labels.tolist() == [8, -100]


def test_repeated_samples_carry_no_loss(tmp_path):
    """Acceptance case 57: fewer rows than ranks."""
    store = write_store(tmp_path / "store", [numbered([6])])
    batches = [take(PackedLoader(store, rows_per_batch=2, seed=0, rank=rank, world_size=4), 2) for rank in range(4)]
    assert all(batch["input_ids"] == list(range(6)) for rank in batches for batch in rank)
    assert batches[0][0]["labels"] == [-100, 2, 3, 4, 5, -100]
    assert all(batch["labels"] == [-100] * 6 for rank in batches[1:] for batch in rank)
