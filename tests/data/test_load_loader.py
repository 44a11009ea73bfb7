"""Settings of the loader: what is taken, what is refused and why."""

import pytest

from astrai_data.load import LoadError, PackedLoader
from astrai_data.store import TokenStore
from tests.data.loading import numbered, take, write_store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return write_store(tmp_path_factory.mktemp("load") / "store", [numbered([9, 7, 16, 4, 3])])


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    root = tmp_path_factory.mktemp("load") / "store"
    return write_store(root, [numbered([9, 7, 30, 4])], strategy="simple", capacity=None)


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, 3), ({"window": 10}, 5), ({"window": 50}, 1)],
)
def test_batch_tokens_are_never_exceeded(store, options, expected):
    loader = PackedLoader(store, batch_tokens=50, seed=0, **options)
    assert loader.samples_per_batch == expected
    batches = take(loader, 2 * loader.batches_per_epoch)
    assert all(len(batch["input_ids"]) <= 50 for batch in batches)
    assert loader.epoch == 2


def test_rows_without_a_capacity_are_measured(unpacked):
    assert PackedLoader(unpacked, batch_tokens=65, seed=0).samples_per_batch == 2
    with pytest.raises(LoadError, match="too small for one sample") as caught:
        PackedLoader(unpacked, batch_tokens=29, seed=0)
    assert "at least 30" in str(caught.value)
    assert "window" in caught.value.hint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "given once"),
        ({"batch_tokens": 64, "rows_per_batch": 1}, "given once"),
        ({"batch_tokens": 0}, "batch_tokens is too small"),
        ({"rows_per_batch": 0}, "rows_per_batch is too small"),
        ({"rows_per_batch": 1, "rank": 2, "world_size": 2}, "no such rank"),
        ({"rows_per_batch": 1, "rank": -1}, "rank is too small"),
        ({"rows_per_batch": 1, "world_size": 0}, "world_size is too small"),
        ({"rows_per_batch": 1, "workers": -1}, "workers is too small"),
        ({"rows_per_batch": 1, "prefetch": 0}, "prefetch is too small"),
        ({"rows_per_batch": 1, "block_rows": 0}, "block_rows is too small"),
        ({"rows_per_batch": 1, "window_blocks": 0}, "window_blocks is too small"),
    ],
)
def test_settings_that_cannot_be_used(store, options, message):
    with pytest.raises(LoadError, match=message):
        PackedLoader(store, seed=0, **options)


@pytest.mark.parametrize("options", [{}, {"window": 8}])
def test_an_empty_split_is_a_clear_error(tmp_path, options):
    """Weakness 24: no division by zero, no hang."""
    write_store(tmp_path / "store", [numbered([5])], split="validation")
    with pytest.raises(LoadError, match="nothing to load") as caught:
        PackedLoader(TokenStore.open(tmp_path / "store", "train"), rows_per_batch=1, seed=0, **options)
    assert "split 'train'" in str(caught.value)


def test_no_shuffle_reads_in_order(store):
    loader = PackedLoader(store, rows_per_batch=1, seed=0, shuffle=False)
    rows = [store.row(row).sequence.tolist() for row in range(store.num_rows)]
    assert [batch["input_ids"] for batch in take(loader, 2 * store.num_rows)] == rows * 2


def test_data_without_masks_trains_everything(tmp_path):
    """Weakness 27."""
    documents = [([1, 2, 3], [1, 1, 1]), ([4, 5], [1, 1])]
    store = write_store(tmp_path / "store", [documents])
    batch = take(PackedLoader(store, rows_per_batch=1, seed=0), 1)[0]
    assert [label for label in batch["labels"] if label != -100] == [2, 3, 5]
