"""Files of odd records: hypothesis strategies, and `Source`s that know what their records are without being read."""

import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from hypothesis import strategies as st

FIELDS = ("text", "reply", "messages", "eos")  # `eos`: also the name of a mask rule
NAMES = (*FIELDS, "kind", "a:b.c")
ROLES = ("system", "user", "assistant", "tool", "critic")
SUFFIXES = {"gzip": ".gz", "zstd": ".zst", None: ""}
Entry = tuple[int, dict | str]
"""Position of a record, and the record (our field names) or the reason why it is none."""


@dataclass(frozen=True)
class Source:
    """One input file; `lines` are (bytes or value, None or the reason of its reject, "blank" for no record at all)."""

    format: str
    lines: list[tuple]
    compression: str | None = None
    domain: str | None = None
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> tuple:
        """Neighbours of one kind, being small, are read by one task."""
        return self.format, self.compression, self.domain, sorted(self.fields.items())

    def write(self, folder: Path, number: int) -> dict:
        """The entry of `data.inputs` for the file, which is written."""
        path = folder / f"{number}.{self.format}{SUFFIXES[self.compression]}"
        data = self._data()
        if self.compression == "gzip":
            data = gzip.compress(data, mtime=0)
        elif self.compression == "zstd":
            data = zstandard.compress(data)
        path.write_bytes(data)
        return {"path": str(path), "format": self.format, "domain": self.domain, "fields": self.fields}

    def _data(self) -> bytes:
        values = [value for value, _ in self.lines]
        if self.format == "json":
            return json.dumps([self._renamed(value) for value in values], ensure_ascii=False).encode()
        if self.format == "parquet":
            columns = {self.fields.get(name, name): [row.get(name) for row in values] for name in NAMES}
            pq.write_table(pa.table({n: pa.array(c, pa.string()) for n, c in columns.items()}), file := io.BytesIO())
            return file.getvalue()
        return b"\n".join(self._line(value) for value in values)

    def _line(self, value: bytes | dict | str) -> bytes:
        if isinstance(value, dict):
            return json.dumps(self._renamed(value)).encode()
        return value if isinstance(value, bytes) else value.encode()

    def _renamed(self, value: object) -> object:
        return {self.fields.get(k, k): v for k, v in value.items()} if isinstance(value, dict) else value

    def entries(self, max_record_bytes: int, wanted: list[tuple[str, str]]) -> Iterator[Entry]:
        """Every record in order; blank lines are none. `wanted`: the (field, kind) pairs that are read."""
        position = 0
        for number, (value, reason) in enumerate(self.lines):
            raw = self._line(value) if self.format in ("jsonl", "text") else orjson.dumps(self._renamed(value))
            if reason != "blank":
                large = len(raw) > max_record_bytes and (self.format != "json" or not reason)
                if self.format == "parquet":
                    large = any(_size(value.get(name), kind) > max_record_bytes for name, kind in wanted)
                reason = "record_too_large" if large else reason
                place = position if self.format == "jsonl" else number
                yield place, reason or ({"text": value.removeprefix("\ufeff")} if self.format == "text" else value)
            position += len(raw) + 1


def _size(value: str | None, kind: str) -> int:
    """Bytes of a Parquet value as it is read."""
    return 0 if value is None else len(orjson.dumps(value) if kind == "json" else value.encode())


def with_texts(value: object) -> object:
    """A conversation in which a content that is a list of text parts is their text; any other value as it is."""
    return [_with_text(message) for message in value] if isinstance(value, list) else value


def _with_text(message: object) -> object:
    try:
        is_text = all(part["type"] == "text" for part in message["content"])
        return message | {"content": "\n".join(part["text"] for part in message["content"])} if is_text else message
    except (TypeError, KeyError):  # a string's letters have no type
        return message


SPECIALS = ["<|eos|>", "<|im_end|>", "[E]", "a [B] b", "[P]", "say <|bos|>", "<|eos|>\U00100000", "[E]\U00100001"]
WORDS = st.text(st.characters(codec="utf-8"), max_size=20)
LETTERS = st.text("abc <|[E]>\n", max_size=8)
LONG = st.builds(
    lambda word, times: word * times, st.sampled_from(["many words ", "x", "漢字", "\n"]), st.integers(1, 90)
)
TEXTS = st.one_of(WORDS, LETTERS, LONG, st.sampled_from([*SPECIALS, "", " \n\t", "\u2003", "plain words here"]))
OTHERS = st.sampled_from([0, -7, 2.5, True, [], {}, ["a"], {"b": [None, "c"]}, "not a list"])
CONTENTS = st.one_of(WORDS, LETTERS, st.sampled_from([*SPECIALS, "", " \n", "Hello there.", "user"]))
PARTS = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": CONTENTS}, optional={"x": st.none()}), max_size=3
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(ROLES), "content": st.one_of(CONTENTS, CONTENTS, PARTS)}, optional={"name": st.none()}
)
BROKEN_MESSAGES = st.sampled_from(
    [
        *(7, None, {"content": "x"}, {"role": 5, "content": "x"}, {"role": "user"}),
        *({"role": "user", "content": [part]} for part in ("x", {"type": "image_url"}, {"type": "text", "text": None})),
    ]
)
CHATS = st.one_of(
    st.lists(MESSAGES, max_size=4),
    st.lists(MESSAGES, min_size=1, max_size=4),
    st.lists(st.one_of(MESSAGES, MESSAGES, MESSAGES, BROKEN_MESSAGES), max_size=4),
)
KINDS = st.sampled_from([None, "a", "b", "", "é/..", 5])
GOOD = {
    "text": "The quick brown fox jumps over the lazy dog, and so on.",
    "reply": "jumps over.",
    "eos": "end",
    "kind": "a",
} | {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}
BAD_LINES = st.sampled_from(
    [
        *((line, "invalid_json") for line in (b"{", b'{"text": NaN}', b'{"a": 1}{"a": 2}', b'{"text": "\\ud800"}')),
        *((line, "invalid_utf8") for line in (b'{"text": "\xff"}', b"\xc3")),
        *((line, "not_an_object") for line in (b"[]", b"7", b"null", b'"text"')),
        *((line, "blank") for line in (b"", b"  \t")),
    ]
)


def usually(usual: st.SearchStrategy, *seldom: st.SearchStrategy) -> st.SearchStrategy:
    return st.integers(0, 11).flatmap(lambda n: usual if n >= len(seldom) else seldom[n])


TEXT_VALUES, CHAT_VALUES = usually(TEXTS, st.none(), OTHERS), usually(CHATS, st.none(), OTHERS)
VALUES = dict.fromkeys(NAMES, TEXT_VALUES) | {"messages": CHAT_VALUES, "kind": KINDS}
STRINGS = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, st.one_of(st.none(), TEXTS)))
SPARSE = st.fixed_dictionaries({}, optional=VALUES)
RECORDS = usually(st.fixed_dictionaries(VALUES), SPARSE, SPARSE, *[st.just(GOOD)] * 4)


@st.composite
def sources(draw, read: list[str]) -> Source:
    """A file of any format; of the fields that the pipeline reads (`read`), some have another name in it."""
    format_ = draw(st.sampled_from(["jsonl", "jsonl", "jsonl", "jsonl", "json", "json", "parquet", "text"]))
    whole, least = RECORDS.map(lambda record: (record, None)), draw(usually(st.just(3), st.just(0)))
    lines = {
        "jsonl": st.lists(usually(whole, BAD_LINES), min_size=least, max_size=12),
        "json": st.lists(usually(whole, st.just((5, "not_an_object"))), min_size=least, max_size=8),
        "parquet": st.lists(st.tuples(STRINGS, st.none()), min_size=least, max_size=8),
        "text": st.lists(usually(TEXTS.map(lambda t: (t, None)), st.just((b"\xff", "invalid_utf8"))), min_size=1),
    }
    drawn = draw(lines[format_])
    renamed = [name for name in dict.fromkeys(read) if draw(st.integers(0, 5)) == 0 and format_ != "text"]
    return Source(
        format_,
        drawn[:1] if format_ == "text" else drawn,
        None if format_ == "parquet" else draw(usually(st.none(), st.just("gzip"), st.just("zstd"))),
        draw(st.sampled_from([None, None, "a", "é"])),
        {name: f"{name} here" for name in renamed},
    )


SENTENCES = st.builds(
    lambda n: "The quick brown fox jumps over the lazy dog. "[: n % 46] * (1 + n // 46), st.integers(1, 460)
)
PLAIN = st.fixed_dictionaries(
    dict.fromkeys(NAMES, SENTENCES)
    | {"messages": st.lists(MESSAGES, min_size=1, max_size=4).map(lambda m: [*m, GOOD["messages"][1]]), "kind": KINDS}
)


@st.composite
def plain_sources(draw) -> Source:
    """A file of records most of which most configurations keep."""
    records = draw(st.lists(PLAIN, min_size=1, max_size=16))
    return Source("jsonl", [(record, None) for record in records], domain=draw(st.sampled_from([None, "a"])))
