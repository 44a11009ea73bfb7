"""Trouble in the engine stays with whom it concerns; every page comes back."""

import threading

import pytest
import torch

from astrai_serve.engine import Job
from astrai_serve.errors import EngineStoppedError, GenerationError, QueueFullError, RequestError, ServeError
from astrai_train.models import ModelConfig
from tests.serve.serving import SIZES, greedy, small_engine, wait_until
from tests.train.small_models import lively

PROMPTS = [[41], [128, 182, 107], [300 + i for i in range(40)], [7, 300, 9] * 40]


def all_free(engine) -> bool:
    return not engine.scheduler.has_work and engine.pool.num_free == engine.pool.num_pages


@pytest.mark.parametrize("prompt", [[], [512], [-1]])
def test_prompts_that_cannot_be(models, tokenizer, prompt):
    with small_engine(models["near ties"], tokenizer) as engine:
        with pytest.raises(RequestError):
            engine.generate([[300], prompt], greedy())
        assert len(engine.generate([[300]], greedy())[0].ids) == 24


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"context_length": 512}, "256"),
        ({"cache_tokens": 100}, "one full context"),
        ({"cache_tokens": 8}, "one full context"),
        ({"dtype": "float8"}, "unknown dtype"),
    ],
)
def test_options_that_do_not_fit(models, tokenizer, options, words):
    with pytest.raises(ServeError, match=words):
        small_engine(models["near ties"], tokenizer, **options)


def test_a_tokenizer_with_more_ids_than_the_model(tokenizer):
    with pytest.raises(ServeError, match="do not belong together"):
        small_engine(lively(ModelConfig(**SIZES | {"vocab_size": 100}), torch.float32), tokenizer)


def test_a_failed_forward_ends_those_in_it_and_nobody_else(models, tokenizer, caplog):
    with small_engine(models["near ties"], tokenizer) as engine:
        forward, steps = engine.runner.forward, []

        def failing(chunks):
            steps.append(len(chunks))
            if len(steps) == 5:
                raise RuntimeError("out of memory, say")
            return forward(chunks)

        engine.runner.forward = failing
        with pytest.raises(GenerationError, match="out of memory, say"):
            engine.generate(PROMPTS, greedy())
        wait_until(lambda: all_free(engine))
        assert len(engine.generate([PROMPTS[0]], greedy())[0].ids) == 24
        assert "a forward failed" in caplog.text


def test_logits_that_are_no_numbers_end_one_request(models, tokenizer):
    with small_engine(models["near ties"], tokenizer) as engine:
        forward = engine.runner.forward

        def poisoned(chunks):
            logits = forward(chunks).clone()
            for row, chunk in enumerate(chunk for chunk in chunks if chunk.completes):
                if chunk.sequence.num_prompt == 40:
                    logits[row, 7] = torch.nan
            return logits

        engine.runner.forward = poisoned
        updates = list(engine.stream(PROMPTS, greedy()))
        ended = {index: update.finish_reason for index, update, _ in updates if update.finish_reason}
        assert ended == {index: "error" if len(prompt) == 40 else "length" for index, prompt in enumerate(PROMPTS)}
        assert all_free(engine)


def test_a_listener_that_fails_ends_its_own_request(models, tokenizer):
    with small_engine(models["near ties"], tokenizer) as engine:
        done = threading.Event()

        def broken(update):
            raise ValueError("no")

        def good(update):
            if update.finish_reason:
                done.set()

        engine.submit([Job([300], greedy(max_tokens=None), broken), Job([300], greedy(), good)])
        assert done.wait(20)
        wait_until(lambda: all_free(engine))
        assert engine.is_alive


def test_a_full_queue_is_refused_whole(models, tokenizer):
    with small_engine(models["near ties"], tokenizer, max_batch_size=1, max_queue=2) as engine:
        jobs = [Job([300], greedy(max_tokens=None), lambda update: None)] * 3
        sequences = engine.submit(jobs)
        with pytest.raises(QueueFullError):
            engine.submit(jobs[:1])
        engine.cancel(sequences)
        wait_until(lambda: all_free(engine))
        assert engine.num_submitted == 3


def test_many_threads_submit_and_cancel(models, tokenizer):
    with small_engine(models["near ties"], tokenizer, page_size=3, cache_tokens=258, max_batch_size=4) as engine:
        ended = []

        def work(number):
            for i in range(10):
                job = Job([300 + number] * (1 + 7 * i), greedy(max_tokens=3 + i), ended.append)
                [sequence] = engine.submit([job])
                if i % 3 == 0:
                    engine.cancel([sequence, sequence])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: sum(update.finish_reason is not None for update in ended) == 50, 30)
        wait_until(lambda: all_free(engine))
        assert engine.num_submitted == 50


def test_shutdown_ends_what_is_in_work(models, tokenizer):
    engine = small_engine(models["near ties"], tokenizer, max_batch_size=1)
    reasons = []
    jobs = [Job([300], greedy(max_tokens=None), lambda update: reasons.append(update.finish_reason))] * 3
    engine.submit(jobs)
    engine.shutdown()
    assert reasons.count("abort") >= 2
    assert engine.pool.num_free == engine.pool.num_pages
    with pytest.raises(EngineStoppedError):
        engine.submit(jobs)
