"""Template sections: a conversation becomes tokens, and its trained turns become mask runs.

Rendering is one Python call a conversation and dominates; all conversations of a chunk are tokenized together.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from astrai_data.build.rules import role_rule, trained_roles, trains_role
from astrai_data.build.strips import Strip, of_one_rule
from astrai_data.config import PipelineConfig, Section
from astrai_data.mask_rule import MaskRule
from astrai_data.ragged import Ragged
from astrai_data.records.large_integers import loads
from astrai_data.tokenizer import ChatRefusal, EncodedChat, Tokenizer
from astrai_data.tokenizer.conversation import text_of


@dataclass(frozen=True)
class SectionChats:
    """What a template section makes of `n` records.

    strip: tokens and runs; empty where the section is skipped or refused.
    texts: the rendered strings; None where there is none.
    present: bool [n].
    skipped: record number -> filter name.
    refused: record number -> refusal; the record is rejected.
    num_bytes: int64 [n], UTF-8 bytes of the message contents.
    """

    strip: Strip
    texts: list[str | None]
    present: np.ndarray
    skipped: dict[int, str]
    refused: dict[int, ChatRefusal]
    num_bytes: np.ndarray


@dataclass
class _Runs:
    """Mask runs of many rows, flat; `counts` says how many belong to each row."""

    lengths: list[int] = field(default_factory=list)
    rules: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def append_row(self, spans: list[tuple[int, int, int]], num_tokens: int, context: int) -> None:
        """The (begin, end, rule) spans with `context` between, before and after them."""
        before, at = len(self.lengths), 0
        for begin, end, rule in [*spans, (num_tokens, num_tokens, context)]:
            for length, number in ((begin - at, context), (end - begin, rule)):
                if length > 0:
                    self.lengths.append(length)
                    self.rules.append(number)
            at = max(at, end)
        self.counts.append(len(self.lengths) - before)

    def to_ragged(self) -> tuple[Ragged, Ragged]:
        """(run lengths int32, rules uint16), one row for each `append_row`."""
        lengths = Ragged.from_lengths(np.array(self.lengths, np.int32), np.array(self.counts, np.int64))
        return lengths, Ragged(np.array(self.rules, np.uint16), lengths.offsets)


def build_chats(
    config: PipelineConfig,
    tokenizer: Tokenizer,
    section: Section,
    column: pa.LargeBinaryArray,
    rule_numbers: dict[MaskRule, int],
) -> SectionChats:
    """Render and tokenize the conversations of `column` (JSON bytes, null where absent)."""
    values = [None if raw is None else loads(raw) for raw in column.to_pylist()]
    skipped = {row: "empty_conversation" for row, value in enumerate(values) if value == []}
    asked = [row for row, value in enumerate(values) if value is not None and row not in skipped]
    answers = dict(zip(asked, _encode(config, tokenizer, section, [values[row] for row in asked]), strict=True))
    refused = {row: answer for row, answer in answers.items() if isinstance(answer, ChatRefusal)}
    chats = {row: answer for row, answer in answers.items() if isinstance(answer, EncodedChat)}
    present = np.zeros(len(values), bool)
    present[list(chats)] = True
    return SectionChats(
        strip=_strip(config, section, values, chats, rule_numbers),
        texts=[chats[row].text if row in chats else None for row in range(len(values))],
        present=present,
        skipped=skipped,
        refused=refused,
        num_bytes=np.fromiter(map(_content_bytes, values), np.int64, len(values)),
    )


def _encode(config: PipelineConfig, tokenizer: Tokenizer, section: Section, conversations: list) -> list:
    return tokenizer.encode_chats(
        conversations,
        roles=_roles(config, section, conversations),
        scope=config.input.mask_scope,
        train_on=config.input.train_on,
        add_bos=False,
        add_generation_prompt=section.generation_prompt,
        special_tokens=config.input.special_tokens,
        template_date=config.input.template_date,
    )


def _roles(config: PipelineConfig, section: Section, conversations: list) -> frozenset[str]:
    """The roles whose spans are wanted; none where the whole section has one flag."""
    if section.action != "$role":
        return frozenset()
    if config.mask_default != "train":
        return trained_roles(config)
    messages = (message for conversation in conversations if isinstance(conversation, list) for message in conversation)
    seen = {message.get("role") for message in messages if isinstance(message, dict)}
    return frozenset(role for role in seen if isinstance(role, str) and trains_role(config, role))


def _strip(
    config: PipelineConfig,
    section: Section,
    values: list,
    chats: dict[int, EncodedChat],
    rule_numbers: dict[MaskRule, int],
) -> Strip:
    empty = np.empty(0, np.int32)
    rows = [chats[row].ids if row in chats else empty for row in range(len(values))]
    tokens = Ragged.from_rows(rows, np.int32)
    if section.action != "$role":
        return of_one_rule(tokens, rule_numbers[MaskRule(section.field, section.action == "train")])
    context = rule_numbers[MaskRule("context", False)]
    runs = _Runs()
    for row, value in enumerate(values):
        spans = _ruled_spans(config, value, chats[row], rule_numbers) if row in chats else []
        runs.append_row(spans, len(rows[row]), context)
    return Strip(tokens, *runs.to_ragged(), np.zeros(len(values), np.int64))


def _ruled_spans(
    config: PipelineConfig, messages: list[dict], chat: EncodedChat, rule_numbers: dict[MaskRule, int]
) -> list[tuple[int, int, int]]:
    """(begin, end, rule number) of the trained messages."""
    return [
        (begin, end, rule_numbers[role_rule(config, messages[message]["role"])])
        for message, begin, end in chat.spans.tolist()
    ]


def _content_bytes(conversation: object) -> int:
    """UTF-8 bytes of the message contents that are text."""
    if not isinstance(conversation, list):
        return 0
    texts = (text_of(message.get("content")) for message in conversation if isinstance(message, dict))
    return sum(len(text.encode()) for text in texts if text)
