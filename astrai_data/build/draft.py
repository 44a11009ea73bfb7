"""A draft: what the sections make of the records of a chunk, before anything is cut or dropped."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from astrai_data.build.chat import build_chats
from astrai_data.build.strips import Strip, join, of_constant
from astrai_data.build.text import add_around, encode_texts, ends_with, read_texts, starts_with
from astrai_data.config import PipelineConfig, Section
from astrai_data.mask_rule import MaskRule
from astrai_data.tokenizer import ChatRefusal, Tokenizer


@dataclass(frozen=True)
class Draft:
    """What is known of `n` records.

    sequence: tokens and mask runs as built; empty where no section contributed.
    section_texts: for each section, the string it tokenized of each record, or None.
    num_bytes: int64 [n], UTF-8 bytes of section values and message contents.
    skipped: record number -> name of the filter that a value failed.
    refused: record number -> refusal of its conversation or of its text.
    """

    sequence: Strip
    section_texts: list[list[str | None]]
    num_bytes: np.ndarray
    skipped: dict[int, str]
    refused: dict[int, ChatRefusal]

    def text_hashes(self, rows: np.ndarray) -> list[bytes]:
        """xxh3_128 (16 bytes, big-endian) of the strings that were tokenized, joined, for the given rows."""
        texts = self.section_texts[0]
        if len(self.section_texts) > 1:
            texts = ["".join(filter(None, parts)) for parts in zip(*self.section_texts, strict=True)]
        chosen = texts if len(rows) == len(texts) else map(texts.__getitem__, rows.tolist())
        return list(map(xxhash.xxh3_128_digest, map(str.encode, chosen)))


def draft_sections(
    config: PipelineConfig,
    tokenizer: Tokenizer,
    columns: pa.RecordBatch,
    rule_numbers: dict[MaskRule, int],
    eos_id: int | None,
    dtype: np.dtype,
) -> Draft:
    """Run every section over all records of the chunk and join what they give, tokens as `dtype`."""
    desk = _Desk(config, tokenizer, rule_numbers, columns.num_rows)
    for section in config.input.sections or []:
        if section.template:
            desk.add_chats(section, columns.column(f"json:{section.field}"))
        else:
            desk.add_texts(section, columns.column(f"text:{section.field}"))
    if eos_id is not None:
        desk.add_eos(eos_id)
    return Draft(desk.joined(dtype), desk.section_texts, desk.num_bytes, desk.skipped, desk.refused)


class _Desk:
    """Where the strips of a chunk are laid out, section by section."""

    def __init__(
        self,
        config: PipelineConfig,
        tokenizer: Tokenizer,
        rule_numbers: dict[MaskRule, int],
        num_records: int,
    ) -> None:
        self.config, self.tokenizer, self.rule_numbers = config, tokenizer, rule_numbers
        sections = config.input.sections or []
        self.length_limits = all(s.action == "train" and not s.template for s in sections)
        self.strips: list[Strip] = []
        self.section_texts: list[list[str | None]] = []
        self.num_bytes = np.zeros(num_records, np.int64)
        self.contributed = np.zeros(num_records, bool)
        self.skipped: dict[int, str] = {}
        self.refused: dict[int, ChatRefusal] = {}
        # For each trained text section: (its first strip, the one behind its last, bool [n] contributed).
        self.ends: list[tuple[int, int, np.ndarray]] = []

    def add_texts(self, section: Section, column: pa.LargeStringArray) -> None:
        read = read_texts(self.config, column, length_limits=self.length_limits)
        rule = self.rule_numbers[MaskRule(section.field, section.action == "train")]
        strip, refused = encode_texts(self.config, self.tokenizer, read, rule)
        first = ~self.contributed if section.add_special_tokens is None else section.add_special_tokens
        self._note(read.texts, read.present, read.num_bytes, read.skipped)
        self.refused |= refused
        begin = len(self.strips)
        self.strips += add_around(self.tokenizer, strip, read.present & first, rule)
        if section.is_trained_text:
            self.ends.append((begin, len(self.strips), read.present))

    def add_chats(self, section: Section, column: pa.LargeBinaryArray) -> None:
        chats = build_chats(self.config, self.tokenizer, section, column, self.rule_numbers)
        self._note(chats.texts, chats.present, chats.num_bytes, chats.skipped)
        self.refused |= chats.refused
        self.strips.append(chats.strip)

    def add_eos(self, eos_id: int) -> None:
        """EOS after each record's last trained text, whichever section asks for it, unless it is there already."""
        rule, later = self.rule_numbers[MaskRule("eos", True)], np.zeros(len(self.contributed), bool)
        for begin, end, present in reversed(self.ends):
            ended = ends_with(self.strips[begin:end], eos_id)
            self.strips.insert(end, of_constant((eos_id,), present & ~later & ~ended, rule))
            later |= present

    def joined(self, dtype: np.dtype) -> Strip:
        """All strips joined, with BOS in front of chats whose first token it is not yet; tokens of `dtype`."""
        sequence = join(self.strips, dtype)
        tokenizer = self.tokenizer
        bos_rule = self.rule_numbers.get(MaskRule("bos", False))
        if bos_rule is None or "bos_token" not in tokenizer.special_tokens:
            return sequence
        some = sequence.tokens.lengths > 0
        lacking = some & ~starts_with(sequence, tokenizer.bos_token_id)
        return join([of_constant((tokenizer.bos_token_id,), lacking, bos_rule), sequence], dtype)

    def _note(self, texts: list, present: np.ndarray, num_bytes: np.ndarray, skipped: dict[int, str]) -> None:
        self.section_texts.append(texts)
        self.num_bytes = self.num_bytes + num_bytes
        self.contributed = self.contributed | present
        self.skipped |= skipped
