"""Text sections: one string of a record becomes tokens, with what the post-processor and `append_eos` add.

A section is skipped for a record whose value is null, absent, blank or, where the whole configuration is trained text,
outside `min_chars` and `max_chars`.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from astrai_data.build.strips import Strip, of_constant, of_one_rule
from astrai_data.config import PipelineConfig
from astrai_data.ragged import Ragged
from astrai_data.tokenizer import ChatRefusal, Tokenizer

REFUSED_TEXT = "special_token_in_text"
"""The reason of a record whose text would become a special token though special tokens are to be text."""

# First bytes, in UTF-8, of the characters that Python counts as white space.
_WHITE_SPACE_LEADS = np.frombuffer(b"\t\n\v\f\r\x1c\x1d\x1e\x1f \xc2\xe1\xe2\xe3", np.uint8)


@dataclass(frozen=True)
class SectionTexts:
    """The strings a section tokenizes.

    texts: one entry a record; None where the section is skipped.
    present: bool [n], the section contributes.
    skipped: why it does not, where a value was there: record number -> filter name.
    num_bytes: int64 [n], UTF-8 bytes of the value, used or not.
    """

    texts: list[str | None]
    present: np.ndarray
    skipped: dict[int, str]
    num_bytes: np.ndarray


def read_texts(config: PipelineConfig, column: pa.LargeStringArray, *, length_limits: bool) -> SectionTexts:
    """Choose the values of `column` that a text section uses."""
    texts: list[str | None] = column.to_pylist()
    present = column.is_valid().to_numpy(zero_copy_only=False)
    skipped = dict.fromkeys(_blank_rows(column, texts, present), "empty_text")
    if length_limits:
        limits = config.preprocessing
        skipped = _outside(column, texts, limits.min_chars, limits.max_chars, present) | skipped
    for row in skipped:
        texts[row] = None
    present[list(skipped)] = False
    return SectionTexts(texts, present, skipped, _value_bytes(column))


def encode_texts(
    config: PipelineConfig, tokenizer: Tokenizer, read: SectionTexts, rule: int
) -> tuple[Strip, dict[int, ChatRefusal]]:
    """(the tokens of one section, without anything added; record number -> refusal of its text, its row empty)."""
    chosen = [text for text in read.texts if text is not None]
    rows, reasons = tokenizer.encode_texts(chosen, special_tokens=config.input.special_tokens)
    lengths = np.zeros(len(read.texts), np.int64)
    lengths[read.present] = rows.lengths
    places = np.flatnonzero(read.present)
    refused = {int(places[row]): ChatRefusal(REFUSED_TEXT, reason) for row, reason in reasons.items()}
    return of_one_rule(Ragged.from_lengths(rows.flat, lengths), rule), refused


def add_around(tokenizer: Tokenizer, text: Strip, present: np.ndarray, rule: int) -> list[Strip]:
    """`text` with the post-processor's tokens around it for the records that are `present`."""
    before = of_constant(tokenizer.post_prefix, present, rule)
    after = of_constant(tokenizer.post_suffix, present, rule)
    return [before, text, after]


def ends_with(strips: list[Strip], token_id: int) -> np.ndarray:
    """bool [n]: the record's last token in `strips`, joined, is `token_id`."""
    found = np.zeros(len(strips[0]), bool)
    for tokens in (strip.tokens for strip in strips):
        some = np.flatnonzero(tokens.lengths)
        found[some] = tokens.values[tokens.offsets[some + 1] - 1] == token_id
    return found


def starts_with(strip: Strip, token_id: int) -> np.ndarray:
    """bool [n]: the record's first token is `token_id`."""
    tokens = strip.tokens
    some = np.flatnonzero(tokens.lengths)
    found = np.zeros(len(tokens), bool)
    found[some] = tokens.values[tokens.offsets[some]] == token_id
    return found


def _blank_rows(column: pa.LargeStringArray, texts: list[str | None], present: np.ndarray) -> list[int]:
    """The rows that hold nothing but white space; looked at one by one where the first byte allows it."""
    offsets, data = _offsets(column), np.frombuffer(column.buffers()[2] or b"", np.uint8)
    filled = np.flatnonzero(np.diff(offsets))
    maybe = present.copy()
    maybe[filled] &= np.isin(data[offsets[filled]], _WHITE_SPACE_LEADS)
    return [row for row in np.flatnonzero(maybe).tolist() if not texts[row] or texts[row].isspace()]


def _outside(
    column: pa.LargeStringArray, texts: list[str | None], least: int, most: int, present: np.ndarray
) -> dict[int, str]:
    """Present rows of too few or too many characters; those are counted where the bytes leave it open."""
    num_bytes = _value_bytes(column)  # a character has one to four
    maybe = np.flatnonzero(present & ((num_bytes < 4 * least) | (num_bytes > most))).tolist()
    short = [row for row in maybe if len(texts[row]) < least]
    long = [row for row in maybe if len(texts[row]) > most]
    return dict.fromkeys(short, "min_chars") | dict.fromkeys(long, "max_chars")


def _value_bytes(column: pa.LargeStringArray) -> np.ndarray:
    return np.diff(_offsets(column))


def _offsets(column: pa.LargeStringArray) -> np.ndarray:
    return np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
