"""Sampling: each step by its table, the draw against the distribution, the settings' limits."""

import math

import pytest
import torch

from astrai_serve.engine.sampling import (
    apply_temperature,
    draw,
    filter_logits,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise,
    sample,
    uniform_at,
)
from astrai_serve.engine.sampling_params import SamplingParams
from astrai_serve.errors import RequestError

GONE = -math.inf


def kept(logits: torch.Tensor) -> list[int]:
    return logits.isfinite().nonzero().flatten().tolist()


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


@pytest.mark.parametrize(("temperature", "expected"), [(0.5, [2, 4, 6]), (1, [1, 2, 3]), (2, [0.5, 1, 1.5])])
def test_temperature(temperature, expected):
    assert apply_temperature(tensor(1, 2, 3), temperature).tolist() == expected


@pytest.mark.parametrize(
    ("logits", "k", "expected"),
    [
        ([0.1, 0.5, 0.3, 0.9, 0.2], 2, [1, 3]),
        ([0.1, 0.5, 0.3, 0.9, 0.2], 0, [0, 1, 2, 3, 4]),
        ([0.1, 0.5, 0.3, 0.9, 0.2], 99, [0, 1, 2, 3, 4]),
        ([2, 2, 1], 1, [0, 1]),
    ],
)
def test_top_k(logits, k, expected):
    assert kept(keep_top_k(tensor(*logits), k)) == expected


@pytest.mark.parametrize(("p", "count"), [(0, 1), (0.5, 1), (0.63, 1), (0.64, 2), (0.87, 2), (0.9, 3), (1, 5)])
def test_top_p(p, count):
    assert kept(keep_top_p(tensor(1, 2, 3, 4, 5), p)) == list(range(5 - count, 5))


def test_top_p_of_equal_logits_keeps_the_first_ids():
    assert kept(keep_top_p(torch.zeros(10), 0.35)) == [0, 1, 2, 3]


@pytest.mark.parametrize(("min_p", "expected"), [(0, [0, 1, 2, 3]), (0.3, [2, 3]), (0.1, [1, 2, 3]), (1, [3])])
def test_min_p(min_p, expected):
    assert kept(keep_min_p(tensor(0, 1, 2, 3), min_p)) == expected


@pytest.mark.parametrize(
    ("settings", "logits", "history", "expected"),
    [
        ({"frequency_penalty": 0.5}, [4, 1, 2], [0, 2, 0], [3, 1, 1.5]),
        ({"frequency_penalty": 0.5}, [4, 1, 2], [0, 2], [3.5, 1, 1.5]),
        ({"frequency_penalty": 0.5}, [4, 1, 2], None, [4, 1, 2]),
        ({"frequency_penalty": 0.5}, [4, 1, 2], [], [4, 1, 2]),
        ({"frequency_penalty": -0.5}, [4, 1, 2], [0, 0], [5, 1, 2]),
        ({"presence_penalty": 0.5}, [4, 1, 2], [0, 2, 0], [3.5, 1, 1.5]),
        ({"repetition_penalty": 2}, [4, -1, 2], [0, 1, 1], [2, -2, 2]),
        ({"repetition_penalty": 2, "frequency_penalty": 1, "presence_penalty": 0.5}, [4, 1], [0, 0], [-0.5, 1]),
    ],
)
def test_penalties(settings, logits, history, expected):
    history = None if history is None else torch.tensor(history, dtype=torch.int64)
    assert penalise(tensor(*logits), SamplingParams(**settings), history).tolist() == expected


def test_counts_beyond_what_bfloat16_can_count():
    logits = torch.zeros(3, dtype=torch.bfloat16)
    history = torch.zeros(1000, dtype=torch.int64)
    assert penalise(logits, SamplingParams(frequency_penalty=1), history)[0] == -1000


def test_penalties_come_first():
    params = SamplingParams(frequency_penalty=1, temperature=0.5, top_k=3, top_p=0.9)
    logits = penalise(tensor(2, 1, 0, -1), params, torch.tensor([0, 0, 3]))
    assert logits.tolist() == [0, 1, 0, -2]
    filtered = filter_logits(logits, params)
    assert filtered.tolist() == [0, 2, 0, GONE]
    torch.testing.assert_close(filtered.softmax(-1), tensor(0.1065, 0.7870, 0.1065, 0), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("settings", "token", "logprob"),
    [
        ({"temperature": 0}, 1, -0.0659),
        ({"top_k": 1}, 1, 0.0),
        ({"temperature": 0, "top_k": 1, "top_p": 0}, 1, -0.0659),
    ],
)
def test_logprobs(settings, token, logprob):
    drawn = sample(tensor(1, 5, 2), SamplingParams(**settings), uniform=0.99)
    assert drawn.token == token
    assert drawn.logprob == pytest.approx(logprob, abs=1e-4)


def test_greedy_heeds_penalties_and_takes_the_first_of_equals():
    params = SamplingParams(temperature=0, frequency_penalty=2)
    assert sample(tensor(1, 1.5), params, torch.tensor([1, 1])).token == 0
    assert sample(tensor(1, 1, 0), SamplingParams(temperature=0)).token == 0


def test_the_callers_logits_stay_as_they_are():
    logits = tensor(1, 2, 3)
    params = SamplingParams(top_k=1, top_p=0.5, min_p=0.5, frequency_penalty=1, repetition_penalty=2)
    sample(logits, params, torch.tensor([0, 1]), 0.5)
    assert logits.tolist() == [1, 2, 3]


def test_draws_follow_the_distribution():
    logits = tensor(0.5, -1, 2, GONE, 1)
    draws = torch.tensor([draw(logits, uniform_at(7, 0, step)) for step in range(20_000)])
    shares = torch.bincount(draws, minlength=5) / len(draws)
    assert shares[3] == 0
    torch.testing.assert_close(shares, logits.softmax(-1), atol=0.015, rtol=0)


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_what_was_filtered_is_never_drawn(uniform):
    assert draw(tensor(GONE, GONE, 1, 1, GONE), uniform) in (2, 3)


def test_the_numbers_depend_on_seed_choice_and_step_alone():
    numbers = [uniform_at(*key) for key in [(1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0)]]
    assert len(set(numbers)) == 4
    assert numbers == [uniform_at(*key) for key in [(1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0)]]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_p", 1.5),
        ("temperature", -0.1),
        ("temperature", None),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", True),
        ("min_p", 1.01),
        ("frequency_penalty", 2.5),
        ("presence_penalty", -2.5),
        ("repetition_penalty", 0),
        ("rep_window", 0),
        ("max_tokens", -1),
        ("seed", -1),
    ],
)
def test_settings_out_of_range_are_named(name, value):
    with pytest.raises(RequestError) as raised:
        SamplingParams(**{name: value})
    assert raised.value.param == name
    assert raised.value.wanted


def test_settings_in_range():
    SamplingParams(top_k=0, temperature=0, top_p=1, rep_window=None, max_tokens=0, seed=0)
