"""10,000 broken lines: no crash, every line kept, filtered or rejected with a reason a person can act on.

Two makers of broken lines: a byte mutator over valid lines, whose outcome is held against Python's own `json`, and
hypothesis, which makes records of the wrong shape.
"""

import base64
import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from astrai_data import Pipeline, PipelineConfig

from .fates import Fates, fates
from .mutating import mutate
from .toys import write_bpe_tokenizer

NUM_LINES = 10_000
SETTINGS = {
    "version": 2,
    "preprocessing": {"max_packed_len": 256, "drop_untrained": False},
    "run": {"max_reject_ratio": 1.0},
}
CONFIGS = {
    "text": SETTINGS | {"input": {"sections": [{"field": "text", "action": "train", "append_eos": False}]}},
    "chat": SETTINGS
    | {
        "input": {"sections": [{"field": "messages", "action": "$role", "template": True}]},
        "mask": {"assistant": "train"},
        "data": {"keep_fields": ["id"]},
        "output": {"domain_key": "source"},
    },
    "strict template": {},
    "two sections": SETTINGS
    | {
        "input": {"sections": [{"field": "prompt", "action": "mask"}, {"field": "response", "action": "train"}]},
        "data": {"keep_fields": ["id"]},
    },
}
CONFIGS["strict template"] = CONFIGS["chat"]
STRICT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role not in ('system', 'user', 'assistant') %}"
    "{{ raise_exception('unknown role ' + message.role) }}{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content.strip() }}<|im_end|>\n"
    "{% if message.tool_calls %}{{ message.tool_calls[0].function.name | upper }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VALID = {
    "text": [
        {"text": "The quick brown fox jumps over the lazy dog."},
        {"id": 7, "text": 'Über allen Gipfeln ist Ruh.\nTab\there, quote " and \\ there.', "score": 0.25},
        {"text": "今日は \U0001f600 \x00 end", "tags": ["a", None, True, {"n": -1.5e-7}]},
        {"text": "", "n": 18446744073709551615},
        {"url": "https://example.org/?a=1&b=2", "text": "<|eos|> stands in the text"},
    ],
    "chat": [
        {"id": i, "source": "web", "messages": messages}
        for i, messages in enumerate(
            [
                [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}],
                [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "1 + 1?"},
                    {"role": "assistant", "content": "2"},
                ],
                [{"role": "user", "content": "What is <|im_end|>?"}, {"role": "assistant", "content": "A token é 漢."}],
                [{"role": "user", "content": "x", "name": "Jo"}, {"role": "assistant", "content": "", "weight": 1}],
            ]
        )
    ],
    "strict template": [
        {
            "messages": [
                {"role": "user", "content": "Look it up. "},
                {"role": "assistant", "content": "Yes.", "tool_calls": [{"function": {"name": "search"}}]},
            ]
        },
        {"messages": [{"role": "user", "content": "hi"}, {"role": "critic", "content": "no"}]},
    ],
    "two sections": [
        {"id": "a", "prompt": "What is two and two?", "response": "Four."},
        {"prompt": "Nothing follows.", "response": None},
        {"id": {"n": [1, 2]}, "prompt": "   ", "response": "Alone."},
    ],
}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    root = tmp_path_factory.mktemp("tokenizers")
    strict = write_bpe_tokenizer(root / "strict", template=STRICT_TEMPLATE)
    return dict.fromkeys(CONFIGS, write_bpe_tokenizer(root / "chatml")) | {"strict template": strict}


def run(root: Path, tokenizers: dict[str, Path], name: str, data: bytes) -> Fates:
    (root / "in.jsonl").write_bytes(data)
    config = PipelineConfig.from_dict(CONFIGS[name])
    Pipeline(config, [root / "in.jsonl"], root / "store", tokenizers[name]).run()
    return fates(root / "store")


def good_line(name: str) -> bytes:
    return json.dumps(VALID[name][0]).encode() + b"\n"


# --- the byte mutator


def mutated_lines(name: str, seed: int) -> list[bytes]:
    random_ = random.Random(seed)
    valid = [json.dumps(record, ensure_ascii=random_.random() < 0.5).encode() for record in VALID[name]]
    return [mutate(random_.choice(valid), random_) for _ in range(NUM_LINES)]


def refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def read_by_python(line: bytes) -> dict | None:
    """The record of a line as Python's own parser reads it, strictly; None if that is no object."""
    try:
        record = json.loads(line.decode(), parse_constant=refuse)
        json.dumps(record, ensure_ascii=False, allow_nan=False).encode()  # no half characters, no infinity
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


@pytest.mark.parametrize("name", CONFIGS)
def test_mutated_bytes(tmp_path, tokenizers, name):
    data = good_line(name) + b"\n".join(mutated_lines(name, seed=len(name)))
    found = run(tmp_path, tokenizers, name, data)
    lines, offset = {}, 0
    for line in data.split(b"\n"):
        if line.strip():
            lines[offset] = line
        offset += len(line) + 1
    assert found.num_read == len(lines)
    positions = {position for _, position in found.texts} | {reject["position"] for reject in found.rejects}
    assert positions <= lines.keys()
    assert len(positions) == len(found.texts) + len(found.rejects)
    for reject in found.rejects:
        raw = reject["raw"].encode() if "raw" in reject else base64.b64decode(reject["raw_base64"])
        if reject["reason"] in ("invalid_json", "invalid_utf8", "not_an_object", "wrong_type"):
            assert raw == lines[reject["position"]]
    check_against_python(name, lines, found)
    assert len(found.rejects) > NUM_LINES // 3
    assert len(found.texts) > NUM_LINES // 100


def check_against_python(name: str, lines: dict[int, bytes], found: Fates) -> None:
    rejected = {reject["position"]: reject for reject in found.rejects}
    for position, line in lines.items():
        record, refusal = read_by_python(line), rejected.get(position)
        if record is None:
            assert refusal is not None, line
            assert refusal["reason"] in ("invalid_json", "invalid_utf8", "not_an_object"), refusal
        elif refusal is not None:
            assert refusal["reason"] not in ("invalid_utf8", "not_an_object"), refusal
            assert refusal["reason"] != "invalid_json" or b"[" * 1024 in line, refusal
        elif name == "text" and ("in.jsonl", position) in found.texts:
            assert found.texts["in.jsonl", position] == record["text"]
        elif name == "text":
            assert not (record.get("text") or "").strip()


# --- hypothesis

SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(st.characters(), max_size=20),
    st.sampled_from(["user", "assistant", "<|im_end|>", "\ud800", " ", "\x00", "\U00100000", "{{ 1 }}"]),
)
ANYTHING = st.recursive(
    SCALAR,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "text", "name", ""]), inner, max_size=4),
    ),
    max_leaves=12,
)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "role": st.one_of(st.sampled_from(["user", "assistant", "system", "tool", "critic"]), SCALAR),
        "content": st.one_of(st.text(max_size=20), ANYTHING),
        "tool_calls": ANYTHING,
        "name": SCALAR,
    },
)
WITHOUT_SHRINKING = [Phase.explicit, Phase.reuse, Phase.generate]  # an example is a run, and shrinking takes hundreds
FIELDS = ("text", "prompt", "response", "id", "source")
RECORD = st.one_of(
    st.fixed_dictionaries({"messages": st.lists(MESSAGE, max_size=4)}, optional=dict.fromkeys(FIELDS, ANYTHING)),
    st.fixed_dictionaries({}, optional=dict.fromkeys((*FIELDS, "messages"), ANYTHING)),
    ANYTHING,
)


@pytest.mark.parametrize("name", CONFIGS)
@settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck), phases=WITHOUT_SHRINKING)
@given(records=st.lists(RECORD, min_size=20, max_size=120), data=st.data())
def test_records_of_any_shape(tmp_path_factory, tokenizers, name, records, data):
    lines = [json.dumps(record, ensure_ascii=data.draw(st.booleans())) for record in records]
    raw = "\n".join(lines).encode(errors="surrogatepass")
    found = run(tmp_path_factory.mktemp("shapes"), tokenizers, name, good_line(name) + raw)
    assert found.num_read == 1 + sum(bool(line.strip()) for line in raw.split(b"\n"))
