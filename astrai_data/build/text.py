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
from astrai_data.tokenizer import Tokenizer


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
    skipped = {row: "empty_text" for row, text in enumerate(texts) if text is not None and _is_blank(text)}
    if length_limits:
        skipped |= _outside(texts, config.preprocessing.min_chars, config.preprocessing.max_chars, skipped)
    for row in skipped:
        texts[row] = None
    present = np.fromiter((text is not None for text in texts), bool, len(texts))
    return SectionTexts(texts, present, skipped, _value_bytes(column))


def encode_texts(config: PipelineConfig, tokenizer: Tokenizer, read: SectionTexts, rule: int) -> Strip:
    """The tokens of one section, without anything added."""
    chosen = [text for text in read.texts if text is not None]
    ids, offsets = tokenizer.encode_batch(chosen, special_tokens=config.input.special_tokens)
    lengths = np.zeros(len(read.texts), np.int64)
    lengths[read.present] = np.diff(offsets)
    return of_one_rule(Ragged.from_lengths(ids, lengths), rule)


def add_around(tokenizer: Tokenizer, text: Strip, present: np.ndarray, rule: int) -> list[Strip]:
    """`text` with the post-processor's tokens around it for the records that are `present`."""
    before = of_constant(tokenizer.post_prefix, present, rule)
    after = of_constant(tokenizer.post_suffix, present, rule)
    return [before, text, after]


def ends_with(strip: Strip, token_id: int) -> np.ndarray:
    """bool [n]: the record's last token is `token_id`."""
    tokens = strip.tokens
    some = np.flatnonzero(tokens.lengths)
    found = np.zeros(len(tokens), bool)
    found[some] = tokens.values[tokens.offsets[some + 1] - 1] == token_id
    return found


def starts_with(strip: Strip, token_id: int) -> np.ndarray:
    """bool [n]: the record's first token is `token_id`."""
    tokens = strip.tokens
    some = np.flatnonzero(tokens.lengths)
    found = np.zeros(len(tokens), bool)
    found[some] = tokens.values[tokens.offsets[some]] == token_id
    return found


def _is_blank(text: str) -> bool:
    return not text or text.isspace()


def _outside(texts: list[str | None], min_chars: int, max_chars: int | None, skipped: dict) -> dict[int, str]:
    most = max_chars if max_chars is not None else float("inf")
    lengths = [(row, len(text)) for row, text in enumerate(texts) if text is not None and row not in skipped]
    outside = {row: "min_chars" for row, length in lengths if length < min_chars}
    return outside | {row: "max_chars" for row, length in lengths if length > most}


def _value_bytes(column: pa.LargeStringArray) -> np.ndarray:
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    return np.diff(offsets)
