"""The engine: the same answer in any company, and one request's trouble stays its own."""

import threading

import pytest
import torch

from astrai_serve.engine import Job, SamplingParams, loading
from astrai_serve.engine.detokenizer import new_detokenizer
from astrai_serve.engine.sequence import Sequence
from astrai_serve.errors import (
    ContextLengthError,
    EngineStoppedError,
    GenerationError,
    QueueFullError,
    RequestError,
    ServeError,
)
from astrai_train.models import ModelConfig, PackedAttention
from tests.data.toys import TRAINING_TEXT
from tests.serve.serving import SIZES, greedy, small_engine, wait_until
from tests.train.small_models import lively


@pytest.fixture(scope="module")
def prompts(tokenizer):
    generator = torch.Generator().manual_seed(3)
    random = [torch.randint(5, 400, (n,), generator=generator).tolist() for n in (1, 3, 40, 130)]
    return random + [[tokenizer.bos_token_id, *tokenizer.encode(text[:12])] for text in TRAINING_TEXT[:4]]


@pytest.fixture(scope="module", params=["near ties", "trained"])
def model(models, request):
    return models[request.param]


@pytest.fixture(scope="module")
def alone(model, tokenizer, prompts):
    with small_engine(model, tokenizer) as engine:
        return [engine.generate([prompt], greedy())[0] for prompt in prompts]


def all_free(engine) -> bool:
    return not engine.scheduler.has_work and engine.pool.num_free == engine.pool.num_pages


def test_greedy_is_repeated_argmax_of_whole_forwards(model, tokenizer, prompts, alone):
    for prompt, answer in zip(prompts, alone, strict=True):
        ids = list(prompt)
        for _ in answer.ids:
            borders = torch.tensor([0, len(ids)], dtype=torch.int32)
            with torch.inference_mode():
                logits = model(torch.tensor(ids), torch.arange(len(ids)), PackedAttention(borders))
            ids.append(int(logits[-1, : tokenizer.max_id + 1].argmax()))
        assert ids[len(prompt) :] == answer.ids


@pytest.mark.parametrize(
    ("options", "step_tokens"),
    [
        ({}, 256),
        ({}, 16),
        ({"page_size": 1}, 64),
        ({"page_size": 3, "max_batch_size": 3}, 256),
        ({"page_size": 16, "cache_tokens": 256}, 32),  # one context for all: they put each other back
        ({"page_size": 7, "cache_tokens": 259}, 256),
    ],
)
def test_an_answer_is_the_same_to_the_last_bit_in_a_batch_of_eight(
    model, tokenizer, prompts, alone, options, step_tokens, monkeypatch
):
    monkeypatch.setitem(loading.STEP_TOKENS, "cpu", step_tokens)
    with small_engine(model, tokenizer, **options) as engine:
        assert engine.runner.row_counts.same_bits
        together = engine.generate(prompts, greedy())
        assert together == alone  # texts, ids and log-probabilities
        assert all_free(engine)


def test_growing_sequences_put_the_newest_back_and_all_end(models, tokenizer, prompts):
    model = models["near ties"]
    with small_engine(model, tokenizer, context_length=64, page_size=8, cache_tokens=64) as engine:
        wanted = [engine.generate([prompt], greedy(max_tokens=40))[0] for prompt in prompts[:2] + prompts[4:5]]
        assert engine.scheduler.num_preempted == 0
        found = engine.generate(prompts[:2] + prompts[4:5], greedy(max_tokens=40))
        assert engine.scheduler.num_preempted > 0
        assert found == wanted
        assert all_free(engine)


def test_a_seed_gives_the_same_answer_whatever_else_is_served(models, tokenizer, prompts):
    params = SamplingParams(seed=5, max_tokens=20, top_p=0.9, top_k=50, presence_penalty=0.3, repetition_penalty=1.1)
    with small_engine(models["near ties"], tokenizer) as engine:
        alone = engine.generate([prompts[2]], params)[0]
        together = engine.generate(prompts, params)
        assert together[2] == alone
        assert engine.generate([prompts[2]], SamplingParams(seed=6, max_tokens=20))[0].ids != alone.ids
        free = [engine.generate([prompts[2]], SamplingParams(max_tokens=20))[0].ids for _ in range(2)]
        assert free[0] != free[1]


def test_streamed_pieces_are_the_text(model, tokenizer, prompts, alone):
    with small_engine(model, tokenizer) as engine:
        texts = [""] * len(prompts)
        for index, update, _ in engine.stream(prompts, greedy()):
            assert update.finish_reason or update.num_tokens == 1
            assert "\ufffd" not in update.text or "\ufffd" in alone[index].text
            texts[index] += update.text
        assert texts == [answer.text for answer in alone]
        assert texts == [tokenizer.decode(answer.ids) for answer in alone]


def test_a_stream_left_early_is_cancelled(models, tokenizer, prompts):
    with small_engine(models["near ties"], tokenizer) as engine:
        stream = engine.stream(prompts, greedy(max_tokens=None))
        next(stream)
        stream.close()
        wait_until(lambda: all_free(engine))


def test_the_memorised_text_ends_with_its_end(models, tokenizer):
    with small_engine(models["trained"], tokenizer) as engine:
        prompt = [tokenizer.bos_token_id, *tokenizer.encode("The quick")]
        answer = engine.generate([prompt], SamplingParams(temperature=0))[0]
        assert "The quick" + answer.text == TRAINING_TEXT[0]
        assert (answer.finish_reason, answer.ids[-1]) == ("stop", tokenizer.eos_token_id)
        cut = engine.generate([prompt], SamplingParams(temperature=0, stop=("lazy dog", " the l")))[0]
        assert (cut.text, cut.finish_reason, cut.matched_stop) == (" brown fox jumps over", "stop", " the l")
        stopped = engine.generate([prompt], SamplingParams(temperature=0, stop_ids=(answer.ids[3],)))[0]
        assert (stopped.ids, stopped.finish_reason) == (answer.ids[:4], "stop")
        assert stopped.text == tokenizer.decode(answer.ids[:3])


@pytest.mark.parametrize(("limit", "text", "reason"), [(0, "", "length"), (1, " brown", "length")])
def test_max_tokens(models, tokenizer, limit, text, reason):
    with small_engine(models["trained"], tokenizer) as engine:
        prompt = [tokenizer.bos_token_id, *tokenizer.encode("The quick")]
        answer = engine.generate([prompt], greedy(max_tokens=limit))[0]
        assert (answer.text, answer.finish_reason, len(answer.ids)) == (text, reason, limit)
        assert engine.generate([], greedy()) == []


def test_the_context_is_the_limit(models, tokenizer):
    with small_engine(models["near ties"], tokenizer, context_length=64, page_size=4) as engine:
        assert len(engine.generate([[300] * 63], greedy(max_tokens=None))[0].ids) == 1
        with pytest.raises(ContextLengthError) as raised:
            engine.generate([[300] * 64], greedy())
        assert raised.value.got == "64 tokens"
        assert "at most 63" in raised.value.wanted


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
        ({"dtype": "float8"}, None),
    ],
)
def test_options_that_do_not_fit(models, tokenizer, options, words):
    if words is None:
        with pytest.raises(ServeError, match="dtype"):
            loading._dtype(options["dtype"], torch.device("cpu"))
        return
    with pytest.raises(ServeError, match=words):
        small_engine(models["near ties"], tokenizer, **options)


def test_a_tokenizer_with_more_ids_than_the_model(tokenizer):
    with pytest.raises(ServeError, match="do not belong together"):
        small_engine(lively(ModelConfig(**SIZES | {"vocab_size": 100}), torch.float32), tokenizer)


def test_a_failed_forward_ends_those_in_it_and_nobody_else(models, tokenizer, prompts, caplog):
    with small_engine(models["near ties"], tokenizer) as engine:
        forward, steps = engine.runner.forward, []

        def failing(chunks):
            steps.append(len(chunks))
            if len(steps) == 5:
                raise RuntimeError("out of memory, say")
            return forward(chunks)

        engine.runner.forward = failing
        with pytest.raises(GenerationError, match="out of memory, say"):
            engine.generate(prompts, greedy())
        wait_until(lambda: all_free(engine))
        assert len(engine.generate([prompts[0]], greedy())[0].ids) == 24
        assert "a forward failed" in caplog.text


def test_logits_that_are_no_numbers_end_one_request(models, tokenizer, prompts):
    with small_engine(models["near ties"], tokenizer) as engine:
        forward = engine.runner.forward

        def poisoned(chunks):
            logits = forward(chunks).clone()
            for row, chunk in enumerate(chunk for chunk in chunks if chunk.completes):
                if chunk.sequence.num_prompt == 40:
                    logits[row, 7] = torch.nan
            return logits

        engine.runner.forward = poisoned
        updates = list(engine.stream(prompts, greedy()))
        ended = {index: update.finish_reason for index, update, _ in updates if update.finish_reason}
        assert ended == {index: "error" if len(prompt) == 40 else "length" for index, prompt in enumerate(prompts)}
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


@pytest.mark.parametrize(
    ("window", "expected"), [(2, [[4, 5], [4, 5, 86], [4, 5, 86, 73]]), (None, [[], [86], [86, 73]])]
)
def test_what_penalties_count(tokenizer, window, expected):
    job = Job([1, 2, 3, 4, 5], SamplingParams(rep_window=window), lambda update: None)
    sequence = Sequence(job, 5, frozenset(), new_detokenizer(tokenizer))
    histories = [sequence.history.tolist()]
    for token in (86, 73):
        sequence.append(token, 0.0)
        histories.append(sequence.history.tolist())
    assert histories == expected


def test_held_text_may_complete_a_stop_at_the_very_end(tokenizer):
    single = {tokenizer.token_bytes[i].tobytes(): i for i in range(len(tokenizer))}
    job = Job([300], SamplingParams(stop=("a\ufffd",)), lambda update: None)
    sequence = Sequence(job, 2, frozenset(), new_detokenizer(tokenizer))
    assert sequence.append(single[b"a"], 0.0).text == ""
    update = sequence.append(single[b"\xc3"], 0.0)
    assert (update.text, update.finish_reason, update.matched_stop) == ("", "stop", "a\ufffd")
