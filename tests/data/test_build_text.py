"""Choosing the texts of a section in columns, against the same one by one."""

import sys

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from astrai_data.build.text import _WHITE_SPACE_LEADS, read_texts
from astrai_data.config import PipelineConfig

SPACES = "".join(chr(point) for point in range(sys.maxunicode + 1) if chr(point).isspace())
TEXT = st.one_of(st.none(), st.text(SPACES + "aé漢\0\u180e\u200b\ufeff", max_size=6), st.text(max_size=6))


def config(least: int, most: int) -> PipelineConfig:
    return PipelineConfig.from_dict(
        {
            "version": 2,
            "input": {"sections": [{"field": "text", "action": "train"}]},
            "preprocessing": {"min_chars": least, "max_chars": most},
        }
    )


def one_by_one(texts: list[str | None], least: int, most: int) -> tuple[list[str | None], dict[int, str]]:
    skipped = {}
    for row, text in enumerate(texts):
        if text is None:
            continue
        if not text or text.isspace():
            skipped[row] = "empty_text"
        elif len(text) < least:
            skipped[row] = "min_chars"
        elif len(text) > most:
            skipped[row] = "max_chars"
    return [None if row in skipped else text for row, text in enumerate(texts)], skipped


def test_every_white_space_character_begins_with_a_known_byte():
    assert {space.encode()[0] for space in SPACES} == set(_WHITE_SPACE_LEADS.tolist())


@given(st.lists(TEXT, max_size=12), st.integers(0, 4), st.sampled_from([1, 3, 5, 100]), st.data())
def test_same_as_one_by_one(texts, least, most, data):
    least = min(least, most)
    begin = data.draw(st.integers(0, len(texts)))
    column = pa.array(texts, pa.large_string()).slice(begin)
    read = read_texts(config(least, most), column, length_limits=True)
    kept, skipped = one_by_one(texts[begin:], least, most)
    assert (read.texts, read.skipped) == (kept, skipped)
    assert read.present.tolist() == [text is not None for text in kept]
    assert read.num_bytes.tolist() == [len((text or "").encode()) for text in texts[begin:]]
