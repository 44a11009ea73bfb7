"""Saved states: exact continuation at any moment, under any number of workers and ranks (cases/data.md, 23 to 30)."""

import json
from itertools import chain

import pytest

from astrai_data.load import LoadError, PackedLoader
from astrai_data.store import TokenStore
from tests.data.loading import first_ids, numbered, take, write_store

NUM_ROWS = 50


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """50 rows of one document each."""
    root = tmp_path_factory.mktemp("load") / "store"
    return write_store(root, [numbered([7, 5] * 15), numbered([6] * 20, 1000)], strategy="simple", capacity=None)


def load(store: TokenStore, **options) -> PackedLoader:
    return PackedLoader(store, **({"rows_per_batch": 1, "seed": 3} | options))


def resumed(store: TokenStore, state: dict, **options) -> PackedLoader:
    loader = load(store, **options)
    loader.load_state_dict(json.loads(json.dumps(state)))  # a checkpoint holds JSON
    return loader


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"window": 11}, {"rows_per_batch": 3, "block_rows": 4, "window_blocks": 2}])
def test_bit_identical_with_any_number_of_workers(store, workers, options):
    """Over epochs, with a save and a resume under another number of workers in between."""
    whole = take(load(store, **options), 130)
    first = load(store, workers=workers, **options)
    begun = take(first, 61)
    rest = take(resumed(store, first.state_dict(), workers=2 - workers, **options), 69)
    first.close()
    assert begun + rest == whole


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_second_resume_goes_on_too(store, workers):
    """24: consume 2, save, resume, consume 2, save, resume: item 5. What was read ahead does not count."""
    expected = first_ids(take(load(store), 6))
    found, state = [], load(store).state_dict()
    for _ in range(3):
        loader = resumed(store, state, workers=workers, prefetch=4)
        found += first_ids(take(loader, 2))
        state = loader.state_dict()
        loader.close()
    assert found == expected
    assert (state["position"], state["num_batches"]) == (6, 6)


def test_a_state_of_a_later_epoch_counts(store):
    """25: three epochs, saved in the second and third; the orders differ and can be had again."""
    whole = first_ids(take(load(store), 3 * NUM_ROWS))
    epochs = [whole[begin : begin + NUM_ROWS] for begin in range(0, len(whole), NUM_ROWS)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert len({tuple(sorted(epoch)) for epoch in epochs}) == 1
    for consumed in (NUM_ROWS + 1, 2 * NUM_ROWS - 1, 2 * NUM_ROWS + 30):
        loader = load(store)
        take(loader, consumed)
        assert first_ids(take(resumed(store, loader.state_dict()), len(whole) - consumed)) == whole[consumed:]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("rows_per_batch", [1, 7])
def test_a_state_at_the_end_of_an_epoch(store, rows_per_batch, workers):
    """26: after the last batch of an epoch the next one begins at 0."""
    options = {"rows_per_batch": rows_per_batch, "workers": workers}
    loader = load(store, **options)
    take(loader, loader.batches_per_epoch)
    state = loader.state_dict()
    assert (state["epoch"], state["position"], loader.epoch) == (1, 0, 1)
    following = take(loader, loader.batches_per_epoch)
    again = resumed(store, state, **options)
    assert take(again, loader.batches_per_epoch) == following
    assert len(list(chain(*(batch["input_ids"] for batch in following)))) == store.num_tokens
    loader.close()
    again.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_before_the_first_batch(store, workers):
    """28: valid at any moment."""
    fresh = load(store, workers=workers)
    state = fresh.state_dict()
    loader = resumed(store, state, workers=workers)
    assert loader.state_dict() == state
    assert take(loader, 5) == take(load(store), 5)
    loader.close()


def test_saving_changes_nothing(store):
    loader = load(store)
    batches = []
    for batch in loader:
        batches.append(batch["input_ids"].tolist())
        loader.state_dict()
        if len(batches) == 60:
            break
    assert batches == [batch["input_ids"] for batch in take(load(store), 60)]


@pytest.mark.parametrize("workers", [0, 2])
def test_breaking_out_and_going_on(store, workers):
    """Case 58, weakness 25: the remaining rows, not all again."""
    loader = load(store, workers=workers)
    seen = []
    for batch in loader:
        seen.append(int(batch["input_ids"][0]))
        if len(seen) == 3:
            break
    seen += first_ids(take(loader, NUM_ROWS - 3))
    assert seen == first_ids(take(load(store), NUM_ROWS))
    assert len(set(seen)) == NUM_ROWS
    loader.close()
    assert first_ids(take(loader, 2)) == first_ids(take(load(store), NUM_ROWS + 2))[-2:]  # also after a close
    loader.close()


def test_case_58_two_loaders_agree(store):
    assert take(load(store), 70) == take(load(store), 70)
    assert first_ids(take(load(store), 20)) != first_ids(take(load(store, seed=4), 20))
    state = load(store).state_dict() | {"epoch": 1}
    assert first_ids(take(resumed(store, state), 5)) == first_ids(take(load(store), NUM_ROWS + 5))[-5:]


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (3, 2), (2, 60)])
def test_resume_under_another_world_size(store, before, after):
    """Rows consumed before and after are an epoch, each once."""

    def step(loaders: list) -> list[int]:
        batches = [take(loader, 1)[0] for loader in loaders]
        return [batch["input_ids"][0] for batch in batches if any(label != -100 for label in batch["labels"])]

    loaders = [load(store, rank=rank, world_size=before) for rank in range(before)]
    seen = list(chain(*(step(loaders) for _ in range(5))))
    states = [loader.state_dict() for loader in loaders]
    assert all(state == states[0] for state in states)
    loaders = [resumed(store, states[0], rank=rank, world_size=after) for rank in range(after)]
    while loaders[0].epoch == 0:
        seen += step(loaders)
    assert sorted(seen) == sorted(first_ids(take(load(store), NUM_ROWS)))


@pytest.mark.parametrize("world_size", [3, 4])
def test_ten_rows_on_several_ranks(tmp_path, world_size):
    """30: the union over ranks is all rows, exactly once; the remainder is kept."""
    store = write_store(tmp_path / "store", [numbered([4] * 10)], strategy="simple", capacity=None)
    seen = []
    for rank in range(world_size):
        loader = load(store, rows_per_batch=2, rank=rank, world_size=world_size, workers=rank % 2)
        for batch in take(loader, loader.batches_per_epoch):
            if any(label != -100 for label in batch["labels"]):
                seen += batch["input_ids"]
        assert loader.epoch == 1
        loader.close()
    assert sorted(seen) == list(range(40))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"seed": 4}, "seed"),
        ({"rows_per_batch": 2}, "samples_per_batch"),
        ({"window": 8}, "samples"),
        ({"shuffle": False}, "rule"),
        ({"block_rows": 7}, "rule"),
        ({"window_blocks": 2}, "rule"),
    ],
)
def test_a_state_of_other_settings_is_refused(store, options, name):
    loader = load(store)
    take(loader, 3)
    with pytest.raises(LoadError, match=f"does not belong to this loader: {name}: ") as caught:
        load(store, **options).load_state_dict(loader.state_dict())
    assert caught.value.got != caught.value.wanted


def test_a_state_of_another_store_is_refused(store, tmp_path):
    """29: the mismatch is detected and explained; the loader stays where it was."""
    other = write_store(tmp_path / "store", [numbered([7] * NUM_ROWS)], strategy="simple", capacity=None)
    loader = load(other)
    take(loader, 3)
    before = loader.state_dict()
    with pytest.raises(LoadError, match="store_id: the store holds other data") as caught:
        loader.load_state_dict(load(store).state_dict())
    assert store.store_id in caught.value.got
    assert other.store_id in caught.value.wanted
    assert loader.state_dict() == before


def test_a_state_of_a_moved_store_is_not_refused(tmp_path):
    loader = load(write_store(tmp_path / "store", [numbered([7] * 9)]))
    take(loader, 2)
    (tmp_path / "store").rename(tmp_path / "moved")
    assert resumed(TokenStore.open(tmp_path / "moved"), loader.state_dict()).state_dict() == loader.state_dict()


def test_a_state_of_a_newer_rule_is_refused(store):
    state = load(store).state_dict()
    with pytest.raises(LoadError, match="rule"):
        load(store).load_state_dict(state | {"rule": state["rule"] | {"version": 2}})


@pytest.mark.parametrize(
    "change",
    [{"format": "x"}, {"version": 2}, {"epoch": -1}, {"position": NUM_ROWS}, {"position": None}, {"num_batches": "3"}],
)
def test_a_damaged_state_is_refused(store, change):
    with pytest.raises(LoadError, match=r"no state of a loader|is damaged"):
        load(store).load_state_dict(load(store).state_dict() | change)
    with pytest.raises(LoadError, match="no state of a loader"):
        load(store).load_state_dict([])


@pytest.mark.parametrize("stop", [1, 500, 1500])
def test_resume_inside_a_shard_skips_nothing(tmp_path, stop):
    """23: 2,000 rows, stopped anywhere: seen and rest are all rows, in order."""
    store = write_store(tmp_path / "store", [numbered([2] * 2000)], strategy="simple", capacity=None)
    loader = load(store, shuffle=False)
    seen = first_ids(take(loader, stop))
    rest = first_ids(take(resumed(store, loader.state_dict(), shuffle=False), 2000 - stop))
    assert seen + rest == list(range(0, 4000, 2))
