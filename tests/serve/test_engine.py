"""The engine: the same answer in any company, and one request's trouble stays its own."""

import pytest
import torch

from astrai_serve.engine import Job, SamplingParams, loading
from astrai_serve.engine.detokenizer import new_detokenizer
from astrai_serve.engine.sequence import Sequence
from astrai_serve.errors import (
    ContextLengthError,
)
from astrai_train.models import PackedAttention
from tests.data.toys import TRAINING_TEXT
from tests.serve.serving import greedy, small_engine, wait_until


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
