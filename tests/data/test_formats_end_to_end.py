"""Files as they come, from end to end: every record is kept, filtered or rejected, the balances close, the store
verifies, and what cannot be read is said in words."""

import gzip
import json

import pytest
import xxhash
import zstandard

from astrai_data import TokenStore
from astrai_data.errors import InputError

from .fates import CHAT, TEXT, fates
from .fates import run_files as run
from .running import astrai, write_config
from .toys import write_bpe_tokenizer, write_toy_tokenizer

GOOD = b'{"text":"good"}\n'


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_bpe_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def lines(*texts: str) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


MANY = [f"document {i} of many" for i in range(3000)]

# Files -> texts kept, filters, and of each reject the reason and words of its message.
CASES = {
    "concatenated gzip members": (
        {"a.jsonl.gz": gzip.compress(lines("one")) + gzip.compress(b"") + gzip.compress(lines("two"))},
        (["one", "two"], {}, []),
    ),
    "a record across gzip members": (
        {"a.jsonl.gz": gzip.compress(b'{"text":"on') + gzip.compress(b'e"}\n{"text":"two"}')},
        (["one", "two"], {}, []),
    ),
    "concatenated zstd frames": ({"a.jsonl.zst": zstd(lines("one")) + zstd(lines("two"))}, (["one", "two"], {}, [])),
    "CRLF": ({"a.jsonl": b'{"text":"one"}\r\n{"text":"two"}\r\n\r\n'}, (["one", "two"], {}, [])),
    "CRLF in a text file": ({"a.txt": b"one\r\ntwo\r\n"}, (["one\r\ntwo\r\n"], {}, [])),
    "no final newline": ({"a.jsonl": b'{"text":"one"}\n{"text":"two"}'}, (["one", "two"], {}, [])),
    "a last line cut short": (
        {"a.jsonl": GOOD + b'{"text":"tw'},
        (["good"], {}, [("invalid_json", "byte")]),
    ),
    "escaped NUL": ({"a.jsonl": rb'{"text":"a\u0000b"}'}, (["a\0b"], {}, [])),
    "raw NUL": ({"a.jsonl": GOOD + b'{"text":"a\0b"}\n'}, (["good"], {}, [("invalid_json", "control character")])),
    "NUL in a text file": ({"a.txt": b"a\0b"}, (["a\0b"], {}, [])),
    "a tail of NULs": ({"a.jsonl": GOOD + b"\0" * 5000}, (["good"], {}, [("invalid_json", "byte 0")])),
    "lone surrogates": (
        {"a.jsonl": GOOD + b'{"text":"\\ud83d"}\n{"text":"\\ude00\\ud83d"}\n{"x":"\\udfff","text":"b"}\n'},
        (["good"], {}, [("invalid_json", "surrogate")] * 3),
    ),
    "surrogate pair": ({"a.jsonl": b'{"text":"\\ud83d\\ude00"}'}, (["\U0001f600"], {}, [])),
    "surrogate as UTF-8": (
        {"a.jsonl": GOOD + b'{"text":"\xed\xa0\xbd"}\n'},
        (["good"], {}, [("invalid_utf8", "byte 9")]),
    ),
    "duplicate keys": ({"a.jsonl": b'{"text":"first","text":"last"}'}, (["last"], {}, [])),
    "10,000 deep": (
        {"a.jsonl": b'{"text":"x","deep":' + b"[" * 10_000 + b"]" * 10_000 + b"}\n" + GOOD},
        (["good"], {}, [("invalid_json", "depth")]),
    ),
    "100,000 fields": (
        {"a.jsonl": b"{" + b"".join(b'"field %d":%d,' % (i, i) for i in range(100_000)) + b'"text":"last"}'},
        (["last"], {}, []),
    ),
    "numbers past 2^63": (
        {"a.jsonl": b'{"text":"a","n":9223372036854775808,"m":-99999999999999999999,"k":1' + b"0" * 300 + b"}"},
        (["a"], {}, []),
    ),
    "a number past every double": (
        {"a.jsonl": GOOD + b'{"text":"a","n":1e999}\n'},
        (["good"], {}, [("invalid_json", "infinity")]),
    ),
    "number as text": (
        {"a.jsonl": GOOD + b'{"text":18446744073709551616}\n'},
        (["good"], {}, [("wrong_type", "field 'text': got a number, wanted a string")]),
    ),
    "empty files among others": (
        {
            "a.jsonl": b"",
            "b.jsonl": lines("one"),
            "c.jsonl.gz": b"",
            "d.jsonl.gz": gzip.compress(b""),
            "e.jsonl.zst": zstd(b""),
            "f.json": b"",
            "g.txt": b"",
            "h.jsonl": b"\n \r\n",
            "i.jsonl": lines("two"),
        },
        (["one", "two"], {"empty_text": 1}, []),
    ),
    "byte order mark": ({"a.jsonl": b"\xef\xbb\xbf" + GOOD, "b.txt": b"\xef\xbb\xbftext"}, (["good", "text"], {}, [])),
    "UTF-16": (
        {"a.jsonl": '{"text":"x"}\n'.encode("utf-16"), "b.jsonl": GOOD},
        (["good"], {}, [("invalid_utf8", "0xff"), ("invalid_json", "byte 0")]),
    ),
    "blank and missing": (
        {"a.jsonl": GOOD + b'{"text":" \\u2003\\n"}\n{"text":""}\n{"text":null}\n{"other":"x"}\n{}\n'},
        (["good"], {"empty_text": 2, "missing_field": 3}, []),
    ),
    "a record over the limit": (
        {"a.jsonl": GOOD + b'{"text":"' + b"x" * (1 << 21) + b'"}\n' + GOOD},
        (["good", "good"], {}, [("record_too_large", "2,097,163 bytes")]),
    ),
    "JSON array": (
        {"a.json": b'[{"text":"one"}, null, {"text":[]}, {"text":"two"}]'},
        (["one", "two"], {}, [("not_an_object", "got null"), ("wrong_type", "got an array")]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(tmp_path, tokenizer, name):
    files, (texts, filtered, refusals) = CASES[name]
    found = run(tmp_path, tokenizer, files)
    assert list(found.texts.values()) == texts
    assert dict(found.filtered) == filtered
    assert [reject["reason"] for reject in found.rejects] == [reason for reason, _ in refusals]
    for reject, (_, words) in zip(found.rejects, refusals, strict=True):
        assert words in reject["message"]


def test_the_head_of_a_large_record_ends_with_a_whole_character(tmp_path, tokenizer):
    """65,536 bytes are kept of it, and the cut goes through one of the characters of three."""
    lines_ = [b'{"text":"' + b"x" * shift + "漢".encode() * (1 << 20) + b'"}' for shift in range(3)]
    found = run(tmp_path, tokenizer, {"a.jsonl": b"\n".join([GOOD.strip(), *lines_])})
    assert [len(reject["raw"].encode()) for reject in found.rejects] == [65535, 65536, 65534]
    assert all(line.startswith(r["raw"].encode()) for line, r in zip(lines_, found.rejects, strict=True))


# --- damaged files: an error that names the file and the way out, or what is readable of it


DAMAGED = {
    "truncated gzip": ("b.jsonl.gz", gzip.compress(lines(*MANY))[:-100]),
    "truncated zstd": ("b.jsonl.zst", zstd(lines(*MANY[:1500])) + zstd(lines(*MANY[1500:]))[:-100]),
    "not gzip at all": ("b.jsonl.gz", lines("one")),
    "garbage behind gzip": ("b.jsonl.gz", gzip.compress(lines(*MANY)) + b"garbage"),
    "cut JSON array": ("b.json", b'[{"text":"one"},'),
    "10,000 deep JSON": ("b.json", b"[" * 10_000 + b"]" * 10_000),
    "not Parquet": ("b.parquet", b"not parquet at all"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_file(tmp_path, tokenizer, name):
    file_name, data = DAMAGED[name]
    files = {"a.jsonl": lines("before"), file_name: data, "c.jsonl": lines("after")}
    with pytest.raises(InputError, match="--allow-damaged") as caught:
        run(tmp_path, tokenizer, files)
    assert str(tmp_path / "in" / file_name) in str(caught.value)
    assert not (tmp_path / "store" / "manifest.json").exists()
    found = run(tmp_path, tokenizer, files, allow_damaged=True)
    texts = list(found.texts.values())
    assert texts[0] == "before"
    assert texts[-1] == "after"
    assert texts[1:-1] == MANY[: len(texts) - 2]
    assert [reject["source"] for reject in found.rejects] == [file_name] * len(found.rejects)
    assert found.rejects[-1]["reason"] == "damaged_file" or file_name == "b.json"
    if name in ("truncated gzip", "truncated zstd"):
        assert len(texts) > 1000


@pytest.mark.parametrize("name", ["truncated gzip", "not Parquet"])
def test_damaged_file_on_the_command_line(tmp_path, tokenizer, name):
    file_name, data = DAMAGED[name]
    (tmp_path / file_name).write_bytes(data)
    (tmp_path / "a.jsonl").write_bytes(GOOD)
    write_config(tmp_path / "pipeline.json", TEXT)
    options = ["-o", tmp_path / "store", "-c", tmp_path / "pipeline.json", "--tokenizer", tokenizer, "-q"]
    arguments = ["preprocess", tmp_path / "a.jsonl", tmp_path / file_name, *options]
    done = astrai(*arguments)
    assert done.returncode == 1
    assert str(tmp_path / file_name) in done.stderr
    assert "--allow-damaged" in done.stderr
    assert "Traceback" not in done.stderr
    astrai(*arguments, "--allow-damaged", check=True)
    assert "good" in fates(tmp_path / "store").texts.values()


# --- metadata


LARGE = [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 18446744073709551616123, 10**300 + 1]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_kept_integers_are_exact(tmp_path, tokenizer, name):
    """Beyond 64 bits too; a float stays a float, and a record with a wrong text beside them changes nothing."""
    values = [*map(str, LARGE), "1e+22", "0.1", *(f'{{"a":[{number},"1e22",-0,0.5]}}' for number in LARGE)]
    records = ['{"text":7,"id":18446744073709551616123}', *(f'{{"text":"x","id":{value}}}' for value in values)]
    data = "\n".join(records) if name == "a.jsonl" else f"[{','.join(records)}]"
    config = TEXT | {"data": {"keep_fields": ["id"]}, "run": {"max_reject_ratio": 0.5}}
    run(tmp_path, tokenizer, {name: data.encode()}, config)
    meta = TokenStore.open(tmp_path / "store").documents()["meta"].to_pylist()
    wanted = [value.replace("-0,", "0,").replace("1e+22", "1e22") for value in values]
    assert [entry["id"].replace("1e+22", "1e22") for entry in meta] == wanted


def test_large_integers_beside_deep_nesting(tmp_path, tokenizer):
    """Python reads no such record: its integer is a float then."""
    deep = b'{"text":"x","id":18446744073709551616123,"extra":' + b"[" * 1010 + b"]" * 1010 + b"}\n"
    run(tmp_path, tokenizer, {"a.jsonl": deep}, TEXT | {"data": {"keep_fields": ["id"]}})
    [meta] = TokenStore.open(tmp_path / "store").documents()["meta"].to_pylist()
    assert meta["id"] == "1.8446744073709552e+22"


def test_large_integers_are_rendered_exactly(tmp_path):
    template = "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.wei | tojson }} {{ m.wei }}\n{% endfor %}"
    write_toy_tokenizer(tmp_path / "tok", template=template)
    messages = [{"role": "user", "content": "pay", "wei": number} for number in LARGE]
    config = CHAT | {"preprocessing": {"max_packed_len": 4096, "drop_untrained": False}}
    run(tmp_path, tmp_path / "tok", {"a.jsonl": json.dumps({"messages": messages}).encode()}, config)
    [chat] = TokenStore.open(tmp_path / "store").documents()["text_hash"].to_pylist()
    text = "".join(f"user:pay{number} {number}\n" for number in LARGE)
    assert chat == xxhash.xxh3_128_digest(text.encode())


def test_kept_fields_hold_whatever_json_holds(tmp_path, tokenizer):
    values = ['"NUL \\u0000 and \\ud83d\\ude00"', '{"a":[1,{"b":null}]}', "null", "false", "[]", '""', '"\\r\\n"']
    data = b"".join(b'{"text":"x","m":%s}\n' % value.encode() for value in values)
    run(tmp_path, tokenizer, {"a.jsonl": data}, TEXT | {"data": {"keep_fields": ["m"]}})
    meta = TokenStore.open(tmp_path / "store").documents()["meta"].to_pylist()
    kept = ["NUL \0 and \U0001f600", '{"a":[1,{"b":null}]}', None, "false", "[]", "", "\r\n"]
    assert [entry["m"] for entry in meta] == kept


# --- conversations in JSON


def test_hostile_conversations_are_refused_alone(tmp_path, tokenizer):
    deep = b'{"messages":[{"role":"user","content":"x","extra":' + b"[" * 10_000 + b"]" * 10_000 + b"}]}\n"
    good = b'{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ok"}]}\n'
    bad = [
        (deep, "invalid_json", "depth"),
        (b'{"messages":"text"}\n', "not_a_conversation", "must be a list of messages"),
        (b'{"messages":[["user","hi"]]}\n', "not_a_conversation", "message 0 must be an object"),
        (b'{"messages":[{"role":1,"content":"x"}]}\n', "not_a_conversation", "message 0 has no role"),
        (b'{"messages":[{"role":"user","content":5}]}\n', "not_a_conversation", "message 0 (user) must have text"),
        (b'{"messages":{"role":"user"}}\n', "not_a_conversation", "must be a list of messages"),
        (b'{"messages":[{"role":"user","content":"\\ud800"}]}\n', "invalid_json", "surrogate"),
    ]
    data = b"".join(good + line for line, _, _ in bad)
    found = run(tmp_path, tokenizer, {"a.jsonl": data}, CHAT)
    assert len(found.texts) == len(bad)
    for reject, (line, reason, words) in zip(found.rejects, bad, strict=True):
        assert reject["reason"] == reason
        assert words in reject["message"]
        assert reject["position"] == data.index(line)
