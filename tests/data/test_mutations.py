"""10,000 broken lines: no crash, every line kept, filtered or rejected with a reason a person can act on.

Two makers of broken lines: a byte mutator over valid lines, whose outcome is held against Python's own `json`, and
hypothesis, which makes records of the wrong shape.
"""

import base64
import gzip
import io
import json
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from astrai_data import Pipeline, PipelineConfig
from astrai_data.errors import InputError
from astrai_data.records import FieldSpec, InputFile, RangeReader

from .fates import Fates, fates
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

SNIPPETS = [
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b":", b",", b"\0", b"\n", b"\r", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *(
        b"null",
        b"true",
        b"1e999",
        b"-",
        b"\\ud800",
        b"\\u0000",
        b"NaN",
        b" " * 40,
        b"9" * 40,
        b"[" * 1200,
        b"<|im_end|>",
    ),
    *(b'"text":', b'"role":', b'"content":', b'"messages":[', b"\xc3", b"/*", b"'", b"\x1f", b"{}{}", b"\xe2\x80\xa8"),
]


def mutate(line: bytes, random_: random.Random) -> bytes:
    """One to three edits: a bit flipped, bytes dropped, doubled, moved, overwritten or put in."""
    for _ in range(random_.randint(1, 3)):
        at, end = sorted(random_.choices(range(len(line) + 1), k=2))
        middle = line[at:end]
        match random_.randrange(7):
            case 0 if middle:
                line = line[:at] + bytes([middle[0] ^ 1 << random_.randrange(8)]) + line[at + 1 :]
            case 1:
                line = line[:at] + line[min(end, at + random_.randint(1, 12)) :]
            case 2:
                line = line[:end] + middle[:20] + line[end:]
            case 3:
                line = line[:at]
            case 4:
                line = line[end:] + middle + line[:at]
            case _:
                line = line[:at] + random_.choice(SNIPPETS) + line[at:]
    return line


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
@settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck), phases=WITHOUT_SHRINKING)
@given(records=st.lists(RECORD, min_size=20, max_size=120), data=st.data())
def test_records_of_any_shape(tmp_path_factory, tokenizers, name, records, data):
    lines = [json.dumps(record, ensure_ascii=data.draw(st.booleans())) for record in records]
    raw = "\n".join(lines).encode(errors="surrogatepass")
    found = run(tmp_path_factory.mktemp("shapes"), tokenizers, name, good_line(name) + raw)
    assert found.num_read == 1 + sum(bool(line.strip()) for line in raw.split(b"\n"))


# --- mutated files


RECORDS = [{"text": f"document {i} {'x' * (i % 50)}", "messages": VALID["chat"][i % 4]["messages"]} for i in range(200)]
JSONL = b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS)


def parquet_bytes(**options) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(RECORDS), sink, row_group_size=50, **options)
    return sink.getvalue()


# Name -> (compression, bytes, how many of the last are left alone). Arrow ends the process on some broken footers of
# Parquet files, before anybody could catch it.
FILES = {
    "a.jsonl.gz": ("gzip", gzip.compress(JSONL), 0),
    "a.jsonl.zst": ("zstd", zstandard.ZstdCompressor(write_checksum=True).compress(JSONL), 0),
    "a.json": (None, json.dumps(RECORDS).encode(), 0),
    "a.txt": (None, "Über allen Gipfeln".encode() * 50, 0),
    "a.parquet": (None, parquet_bytes(), 8),
    "plain.parquet": (None, parquet_bytes(compression="none", use_dictionary=False), 8),
}


@pytest.mark.parametrize("name", FILES)
def test_mutated_files(tmp_path, name):
    """A broken file is an error that names it; with `allow_damaged`, what is readable of it and rejects."""
    compression, data, fixed = FILES[name]
    if fixed:
        fixed += int.from_bytes(data[-8:-4], "little")
    random_, outcomes = random.Random(len(data)), Counter()
    fields = [FieldSpec("text", "text"), FieldSpec("messages", "json"), FieldSpec("id", "meta")]
    format_name = {".txt": "text", ".gz": "jsonl", ".zst": "jsonl"}.get(Path(name).suffix, Path(name).suffix[1:])
    for _ in range(150):
        (tmp_path / name).write_bytes(mutate_body(data, fixed, random_))
        size = (tmp_path / name).stat().st_size
        file = InputFile(str(tmp_path / name), name, size, "", format_name, compression)
        for allow_damaged in (False, True):
            reader = RangeReader(file, 0, size, fields, max_record_bytes=1 << 20, allow_damaged=allow_damaged)
            try:
                rejects = [reject for chunk in reader for reject in chunk.rejects]
            except InputError as error:
                outcomes["error", allow_damaged, str(tmp_path / name) in str(error)] += 1
            else:
                assert all(reject.message for reject in rejects)
                outcomes["read", allow_damaged] += 1
    assert outcomes.keys() <= {("error", False, True), ("read", False), ("read", True)}
    assert outcomes["read", True] == 150
    assert outcomes["error", False, True] > 0 or name == "a.txt"


def mutate_body(data: bytes, fixed: int, random_: random.Random) -> bytes:
    if not fixed:
        return mutate(data, random_)
    at = random_.randrange(len(data) - fixed)
    noise = random_.randbytes(random_.randint(1, 30))[: len(data) - fixed - at]
    return data[:at] + noise + data[at + len(noise) :]
