"""Arithmetic: the learning rate of every step, and how many steps there are."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from astrai_train.length import RunLength
from astrai_train.optim import CosineSchedule

CURVES = {
    (2, 8, 0.05): [0.05, 0.5, 1, 0.961940, 0.853553, 0.691342, 0.5, 0.308658, 0.146447, 0.05, 0.05],
    (4, 4, 0.6): [0.6, 0.6, 0.6, 0.75, 1, 0.853553],
    (0, 2, 0.0): [1, 0.5, 0],
    (3, 0, 0.1): [0.1, 1 / 3, 2 / 3, 1, 0.1],
}


@pytest.mark.parametrize(("constants", "wanted"), CURVES.items())
def test_cosine(constants, wanted):
    warmup, decay, floor = constants
    schedule = CosineSchedule(2.0, warmup, decay, floor)
    assert [schedule.at(t) / 2 for t in range(len(wanted))] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(
    ("total", "warmup", "wanted"),
    [(21, 0.05, (1, 20)), (100, 0.5, (50, 50)), (100, 7, (7, 93)), (5, 7, (5, 0)), (1, 0.05, (0, 1))],
)
def test_the_schedule_of_a_run_ends_with_it(total, warmup, wanted):
    schedule = CosineSchedule.over(total, lr=1.0, warmup=warmup, min_ratio=0)
    assert (schedule.warmup_steps, schedule.decay_steps) == wanted


LENGTHS = [  # batches an epoch, accumulate, epochs, max_steps -> steps
    (5, 2, 2, None, 5),  # windows reach over the end of an epoch
    (63, 8, 3, None, 24),  # the last window is short
    (5, 1, None, None, 5),
    (5, 2, None, 9, 9),  # epochs as needed
    (5, 2, 2, 3, 3),
    (5, 2, 2, 30, 5),
    (1, 8, 1, None, 1),
]


@pytest.mark.parametrize(("batches", "accumulate", "epochs", "max_steps", "steps"), LENGTHS)
def test_number_of_steps(batches, accumulate, epochs, max_steps, steps):
    length = RunLength.of(batches, accumulate, epochs, max_steps)
    assert length.total_steps() == steps


@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 4), st.none() | st.integers(1, 60))
def test_windows_use_every_batch_once(batches, accumulate, epochs, max_steps):
    length = RunLength.of(batches, accumulate, epochs, max_steps)
    done, total = 0, length.total_steps()
    for step in range(total):
        assert length.total_steps(step, done) == total  # seen from any step
        window = length.window(done)
        assert 1 <= window <= accumulate
        done += window
    assert done <= batches * epochs
    if max_steps is None:
        assert done == batches * epochs
    assert length.epoch(done) == (done - 1) // batches
