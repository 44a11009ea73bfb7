"""Sharing an epoch out to ranks and batches (spec/data.md §16, cases 57 and 58; cases/data.md, 30)."""

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.load.order import Sequential, Shuffled
from astrai_data.load.schedule import Cursor, Schedule

START = Cursor()


def epoch_of(schedule: Schedule, cursor: Cursor = START) -> list[tuple[list[int], bool]]:
    """(samples, live) of each step of this rank until the epoch ends."""
    steps = -(-(schedule.num_samples - cursor.position) // schedule.samples_per_step)
    return [(share.samples.tolist(), share.live) for share in islice(schedule.shares(cursor), steps)]


def ranks(rule, num_samples: int, size: int, world_size: int, cursor: Cursor = START) -> list:
    return [epoch_of(Schedule(rule, num_samples, size, rank, world_size), cursor) for rank in range(world_size)]


def live_samples(shares_of_ranks: list) -> list[int]:
    return [sample for shares in shares_of_ranks for samples, live in shares if live for sample in samples]


@pytest.mark.parametrize(
    ("num_samples", "world_size", "expected"),
    [
        (10, 4, [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]),
        (1, 4, [[0], [0], [0], [0]]),
        (4, 4, [[0], [1], [2], [3]]),
        (3, 1, [[0, 1, 2]]),
    ],
)
def test_unshuffled_ranks(num_samples, world_size, expected):
    shares = ranks(Sequential(0), num_samples, 1, world_size)
    assert [[samples[0] for samples, _ in rank] for rank in shares] == expected
    assert sorted(live_samples(shares)) == list(range(num_samples))  # a repeated one carries no loss


@given(
    num_samples=st.integers(1, 300),
    size=st.integers(1, 7),
    world_size=st.integers(1, 9),
    window_blocks=st.none() | st.integers(1, 3),
)
@settings(max_examples=80, deadline=None)
def test_all_samples_once_and_equally_many_batches(num_samples, size, world_size, window_blocks):
    rule = Shuffled(1, 4, window_blocks)
    shares = ranks(rule, num_samples, size, world_size)
    assert sorted(live_samples(shares)) == list(range(num_samples))
    assert len({len(rank) for rank in shares}) == 1
    assert all(1 <= len(samples) <= size for rank in shares for samples, _ in rank)


@given(
    num_samples=st.integers(1, 200),
    worlds=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    steps=st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_the_world_may_change_at_any_step(num_samples, worlds, steps):
    """What is consumed is a prefix of the order, whatever the ranks were."""
    rule, cursor, consumed = Shuffled(9), Cursor(), []
    order = epoch_of(Schedule(rule, num_samples, 1))
    for world_size in [*worlds, 1]:
        schedules = [Schedule(rule, num_samples, 2, rank, world_size) for rank in range(world_size)]
        left = -(-(num_samples - cursor.position) // schedules[0].samples_per_step)
        taken = left if world_size is worlds[-1] else min(steps, left - 1)
        for _ in range(taken):
            step = [next(schedule.shares(cursor)) for schedule in schedules]
            consumed += sorted(s for share in step if share.live for s in share.samples.tolist())
            cursor = schedules[0].after(cursor)
        if cursor.epoch:
            break
    assert sorted(consumed) == sorted(samples[0] for samples, _ in order)


def test_epochs_roll_on():
    schedule = Schedule(Shuffled(0), 10, 3)
    sizes = [len(share.samples) for share in islice(schedule.shares(Cursor()), 9)]
    assert sizes == [3, 3, 3, 1] * 2 + [3]
    cursors = [cursor := Cursor()] + [cursor := schedule.after(cursor) for _ in range(5)]
    assert [(c.epoch, c.position) for c in cursors] == [(0, 0), (0, 3), (0, 6), (0, 9), (1, 0), (1, 3)]


@pytest.mark.parametrize("start", [0, 3, 190, 192, 599])
def test_shares_are_the_same_from_anywhere(start):
    """Samples are computed in slabs; where one begins must not show."""
    schedule = Schedule(Shuffled(4), 600, 1)
    later = list(islice(schedule.shares(Cursor(0, start)), 700))
    full = list(islice(schedule.shares(Cursor()), start, start + 700))
    assert [share.samples.tolist() for share in later] == [share.samples.tolist() for share in full]
