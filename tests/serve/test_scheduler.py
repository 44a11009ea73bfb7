"""The scheduler: who goes first, who is put back, and that no page is ever lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_serve.cache import PagePool
from astrai_serve.engine.detokenizer import new_detokenizer
from astrai_serve.engine.sampling_params import SamplingParams
from astrai_serve.engine.scheduler import Scheduler
from astrai_serve.engine.sequence import Job, Sequence

WORD = 300  # an id of the toy tokenizer that ends nothing


@pytest.fixture
def new_sequence(tokenizer):
    def make(length: int, limit: int = 8) -> Sequence:
        job = Job([WORD] * length, SamplingParams(temperature=0), lambda update: None)
        return Sequence(job, limit, frozenset(), new_detokenizer(tokenizer))

    return make


def compute(chunks) -> list[tuple[int, int]]:
    """Do as if the chunks were computed and a token drawn wherever one follows; (begin, end) of each chunk."""
    for chunk in chunks:
        completes = chunk.completes
        chunk.sequence.num_cached = chunk.end
        if completes:
            chunk.sequence.append(WORD, 0.0)
    return [(chunk.begin, chunk.end) for chunk in chunks]


def owned(scheduler: Scheduler) -> int:
    return sum(len(sequence.pages) for sequence in [*scheduler.running, *scheduler.waiting])


def test_prompts_share_a_step_and_then_decode_together(new_sequence):
    scheduler = Scheduler(PagePool(64, 4), 8, 64)
    for length in (4, 6, 4):
        scheduler.add(new_sequence(length))
    assert compute(scheduler.schedule()) == [(0, 4), (0, 6), (0, 4)]
    assert compute(scheduler.schedule()) == [(4, 5), (6, 7), (4, 5)]


def test_a_long_prompt_stalls_nobody(new_sequence):
    scheduler = Scheduler(PagePool(64, 4), 8, 16)
    scheduler.add(new_sequence(4))
    compute(scheduler.schedule())
    scheduler.add(new_sequence(40))
    scheduler.add(new_sequence(3))
    steps = [compute(scheduler.schedule()) for _ in range(4)]
    assert steps == [
        [(4, 5), (0, 15)],
        [(5, 6), (15, 30)],
        [(6, 7), (30, 40), (0, 3)],
        [(7, 8), (40, 41), (3, 4)],
    ]


def test_no_more_rows_than_allowed(new_sequence):
    scheduler = Scheduler(PagePool(64, 4), 2, 64)
    for _ in range(3):
        scheduler.add(new_sequence(4))
    assert len(scheduler.schedule()) == 2
    assert len(scheduler.waiting) == 1


def test_the_newest_gives_way_and_comes_back_first(new_sequence):
    scheduler = Scheduler(PagePool(4, 4), 8, 64)
    old, new = new_sequence(7), new_sequence(8)
    scheduler.add(old)
    scheduler.add(new)
    compute(scheduler.schedule())
    scheduler.add(new_sequence(1))
    compute(scheduler.schedule())  # old: 8 tokens in 2 pages; new asks for a third page and nobody is newer
    assert scheduler.running == [old]
    assert next(iter(scheduler.waiting)) is new
    assert (new.pages, new.num_cached, new.num_generated) == ([], 0, 1)
    scheduler.remove(old)
    assert next((chunk.sequence, chunk.begin, chunk.end) for chunk in scheduler.schedule()) == (new, 0, 9)


def test_a_waiting_prompt_does_not_take_pages_that_decoding_needs(new_sequence):
    scheduler = Scheduler(PagePool(4, 4), 8, 64)
    scheduler.add(new_sequence(12))
    compute(scheduler.schedule())
    scheduler.add(new_sequence(5))
    assert [chunk.begin for chunk in scheduler.schedule()] == [12]


@given(st.data(), st.sampled_from([1, 3, 16]))
@settings(max_examples=80, deadline=None)
def test_every_page_comes_back_whatever_happens(tokenizer, data, page_size):
    most = 48
    pool = PagePool(-(-most // page_size) + data.draw(st.integers(0, 6)), page_size)
    scheduler = Scheduler(pool, 4, data.draw(st.sampled_from([4, 16, 64])))
    alive: list[Sequence] = []
    for _ in range(data.draw(st.integers(1, 60))):
        what = data.draw(st.sampled_from(["add", "step", "step", "step", "cancel"]))
        if what == "add":
            length = data.draw(st.integers(1, most - 1))
            job = Job([WORD] * length, SamplingParams(), lambda update: None)
            limit = data.draw(st.integers(1, most - length))
            alive.append(Sequence(job, limit, frozenset(), new_detokenizer(tokenizer)))
            scheduler.add(alive[-1])
        elif what == "cancel" and alive:
            scheduler.remove(alive.pop(data.draw(st.integers(0, len(alive) - 1))))
        elif what == "step":
            chunks = scheduler.schedule()
            assert bool(chunks) == scheduler.has_work
            assert sum(chunk.end - chunk.begin for chunk in chunks) <= scheduler.budget
            assert all(len(c.sequence.pages) >= pool.pages_for(c.end) for c in chunks)
            compute(chunks)
            for ended in [sequence for sequence in alive if sequence.finish_reason]:
                scheduler.remove(ended)
                alive.remove(ended)
        assert pool.num_free + owned(scheduler) == pool.num_pages
        assert len(scheduler.running) + len(scheduler.waiting) == len(alive)
    steps = 0
    while scheduler.has_work:  # nobody starves
        compute(scheduler.schedule())
        for ended in [sequence for sequence in alive if sequence.finish_reason]:
            scheduler.remove(ended)
            alive.remove(ended)
        steps += 1
        assert steps < 10_000
    assert pool.num_free == pool.num_pages
