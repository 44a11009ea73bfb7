"""A slow model of the builder, in plain Python over the `tokenizers` library: what each record must become.

It knows nothing of columns, batches, strips or backends, and takes only resolved defaults from the product. It knows
the two templates of the toys (`toys.py`), so that it needs no renderer.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import tokenizers as tk
import xxhash

from astrai_data import PipelineConfig
from astrai_data.config import Section

from .odd_sources import with_texts

KNOWN_ROLES = ("system", "developer", "user", "assistant", "tool")
Rule = tuple[str, bool]
Token = tuple[int, Rule, bool]
"""(id, (rule, trained), whether it stands for no text)."""


@dataclass
class Document:
    """One record as it must come out: `tokens` as built, of which [`begin`, `end`) is left; `lost`: why it is none."""

    place: tuple[int, int]
    domain: str | None
    num_bytes: int = 0
    text: str = ""
    tokens: list[Token] = field(default_factory=list)
    begin: int = 0
    end: int = 0
    lost: tuple[str, str] | None = None
    validation: bool = False
    meta: dict = field(default_factory=dict)

    @property
    def is_unreadable(self) -> bool:
        """No record at all: rejected before the builder sees it."""
        return self.lost is not None and self.lost[0] == "unreadable"

    @property
    def text_hash(self) -> bytes:
        return xxhash.xxh3_128_digest(self.text.encode())

    def num_trained(self, begin: int, end: int) -> int:
        """Labels of a segment that can be trained."""
        return sum(rule[1] for _, rule, _ in self.tokens[begin + 1 : end])


class SlowTokenizer:
    """The library alone, with special tokens parsed or as text; and one of the toys' templates."""

    def __init__(self, directory: Path) -> None:
        self._libraries = {}
        for mode in ("parse", "text"):
            self._libraries[mode] = tk.Tokenizer.from_file(str(directory / "tokenizer.json"))
            self._libraries[mode].encode_special_tokens = mode == "text"
        config = json.loads((directory / "tokenizer_config.json").read_text())
        self.is_chatml = "im_start" in config["chat_template"]
        self.specials = sorted(set(config["special_tokens"].values()) | ({"[B]"} if not self.is_chatml else set()))
        ids = {name: self.id_of(token) for name, token in config["special_tokens"].items()}
        self.bos, self.eos = ids.get("bos_token"), ids["eos_token"]
        around = self._libraries["parse"].encode("a").ids
        at = around.index(self.encode("a", "parse")[0][0])
        self.around = around[:at], around[at + 1 :]

    def id_of(self, token: str) -> int:
        return self._libraries["parse"].token_to_id(token)

    def encode(self, text: str, mode: str) -> list[tuple[int, int]]:
        """(id, where it begins: in bytes for ChatML's byte-level BPE, else in characters) of each token."""
        library = self._libraries[mode]
        encoding = library.encode(text, add_special_tokens=False)
        if not self.is_chatml:
            return list(zip(encoding.ids, [begin for begin, _ in encoding.offsets], strict=True))
        begins, at = [], 0
        for token in encoding.ids:
            begins.append((token, at))
            at += len(library.id_to_token(token))  # a letter for each byte
        assert at == len(text.encode())
        return begins

    def measure(self, text: str) -> int:
        return len(text.encode()) if self.is_chatml else len(text)

    def turn(self, role: str, content: str) -> tuple[str, str, str, str, str]:
        """(opening, header, content, closing, tail) of a message."""
        if self.is_chatml:
            return "<|im_start|>", f"{role}\n", content, "<|im_end|>", "\n"
        return f"<{role[0]}>", "", content, "|", ""

    def prompt(self) -> tuple[str, str]:
        return ("<|im_start|>", "assistant\n") if self.is_chatml else ("<a>", "")


class DocumentModel:
    """Records to documents by one configuration."""

    def __init__(self, config: PipelineConfig, tokenizer: SlowTokenizer) -> None:
        self.config, self.tokenizer, self.sections = config, tokenizer, config.input.sections
        self.has_template = any(section.template for section in self.sections)
        self.appends_eos = any(section.append_eos for section in self.sections)
        self.limits_chars = all(s.action == "train" and not s.template for s in self.sections)
        self.wanted = [(s.field, "json" if s.template else "text") for s in self.sections]
        self.wanted += [(name, "meta") for name in config.data.keep_fields]
        self.wanted += [(config.output.domain_key, "domain")] if config.output.domain_key else []

    def document(self, place: tuple[int, int], record: dict | str, domain: str | None) -> Document:
        """What becomes of a record (or of what is none: a reason) of an input with the default `domain`."""
        if not isinstance(record, str) and any(
            not isinstance(record.get(name), str | None) for name, kind in self.wanted if kind == "text"
        ):
            record = "wrong_type"
        if isinstance(record, str):
            return Document(place, domain, lost=("unreadable", record))
        named = record.get(self.config.output.domain_key)
        document = Document(place, named if isinstance(named, str) else domain)
        document.meta = {name: record.get(name) for name in self.config.data.keep_fields}
        self._build(document, record)
        if document.lost is None:
            self._cap(document)
        seed, fraction = self.config.run.seed, self.config.run.validation_fraction
        drawn = xxhash.xxh3_64_intdigest(document.text_hash + seed.to_bytes(8, "little"))
        document.validation = drawn < int(fraction * 2**64)
        return document

    def _build(self, document: Document, record: dict) -> None:
        strips, last_trained, skipped, refused = [], None, "missing_field", None
        for section in self.sections:
            value, strip, text, why = with_texts(record.get(section.field)), [], "", None
            if section.template and value is not None:
                document.num_bytes += _content_bytes(value)
                strip, text, why = self._chat(section, value)
                refused = why if why not in (None, "empty_conversation") else refused
            elif value is not None:
                document.num_bytes += len(value.encode())
                strip, text, why = self._text(section, value, first=not any(strips))
            skipped = why or skipped
            document.text += text
            if strip and section.is_trained_text:
                last_trained = len(strips)
            strips.append(strip)
        if self.appends_eos and last_trained is not None and strips[last_trained][-1][0] != self.tokenizer.eos:
            strips[last_trained].append((self.tokenizer.eos, ("eos", True), True))
        tokens = [token for strip in strips for token in strip]
        if tokens and self.has_template and self.tokenizer.bos not in (None, tokens[0][0]):
            tokens.insert(0, (self.tokenizer.bos, ("bos", False), True))
        document.tokens, document.end = tokens, len(tokens)
        if refused:
            document.lost = "rejected", refused
        elif not tokens:
            document.lost = "filtered", skipped

    def _text(self, section: Section, text: str, *, first: bool) -> tuple[list[Token], str, str | None]:
        limits = self.config.preprocessing
        if not text.strip():
            return [], "", "empty_text"
        if self.limits_chars and not limits.min_chars <= len(text) <= limits.max_chars:
            return [], "", "min_chars" if len(text) < limits.min_chars else "max_chars"
        rule = section.field, section.action == "train"
        tokens = [(token, rule, False) for token, _ in self.tokenizer.encode(text, self.config.input.special_tokens)]
        if first if section.add_special_tokens is None else section.add_special_tokens:
            before, after = ([(token, rule, True) for token in ids] for ids in self.tokenizer.around)
            tokens = before + tokens + after
        return tokens, text, None

    def _chat(self, section: Section, messages: object) -> tuple[list[Token], str, str | None]:
        if messages == []:
            return [], "", "empty_conversation"
        if not isinstance(messages, list) or not all(map(_is_message, messages)):
            return [], "", "not_a_conversation"
        pieces, spans = self._pieces(section, messages)
        text = "".join(piece for piece, _ in pieces)
        if self.config.input.special_tokens == "parse":
            pieces = [(text, "parse")]
        elif self._holds_stand_ins(messages, text):
            return [], "", "special_token_in_content"
        tokens, at = [], 0
        for piece, mode in pieces:
            for token, begin in self.tokenizer.encode(piece, mode):
                tokens.append((token, self._rule(section, spans, at + begin), False))
            at += self.tokenizer.measure(piece)
        return tokens, text, None

    def _pieces(self, section: Section, messages: list[dict]) -> tuple[list[tuple[str, str]], list[tuple]]:
        """(what is encoded each on its own, and how; (begin, end, rule) of the trained messages)."""
        wanted = [i for i, m in enumerate(messages) if self._trains(m["role"]) and section.action == "$role"]
        wanted = wanted[-1:] if self.config.input.train_on == "last" else wanted
        whole, measure = self.config.input.mask_scope == "message", self.tokenizer.measure
        pieces, spans, at = [], [], 0
        for index, message in enumerate(messages):
            turn = self.tokenizer.turn(message["role"], message["content"])
            opening, header, content, closing, tail = turn
            pieces += [(opening, "parse"), (header + content, "text"), (closing, "parse"), (tail, "text")]
            # White space in front of what others than the assistant say is not trained: a template may strip it.
            blank = "" if message["role"] == "assistant" else content[: len(content) - len(content.lstrip())]
            begin, end = measure(opening + header + blank), measure(opening + header + content + closing)
            if index in wanted:
                known = message["role"] in KNOWN_ROLES or message["role"] in self.config.mask
                rule = message["role"] if known else "other_role", True
                spans.append((at, at + measure("".join(turn)), rule) if whole else (at + begin, at + end, rule))
            at += measure("".join(turn))
        if section.generation_prompt:
            opening, header = self.tokenizer.prompt()
            pieces += [(opening, "parse"), (header, "text")]
        return pieces, spans

    def _trains(self, role: str) -> bool:
        return self.config.mask.get(role, self.config.mask_default) == "train"

    def _rule(self, section: Section, spans: list[tuple], at: int) -> Rule:
        if section.action != "$role":
            return section.field, section.action == "train"
        return next((rule for begin, end, rule in spans if begin <= at < end), ("context", False))

    def _holds_stand_ins(self, messages: list[dict], text: str) -> bool:
        """Whether special strings in messages would need stand-ins that the text holds already."""
        specials = self.tokenizer.specials
        needed = any(special in part for m in messages for part in (m["role"], m["content"]) for special in specials)
        return needed and any(chr(0x100000 + i) in text for i in range(len(specials)))

    def _cap(self, document: Document) -> None:
        limits, built = self.config.preprocessing, len(document.tokens)
        end = min(built, limits.max_seq_len or built)
        least = 2 if self.has_template else 1
        if end < least:
            document.lost = "filtered", "too_few_tokens"
        if limits.packing_strategy != "concat" and end > limits.max_packed_len:
            if limits.over_long == "drop":
                document.lost = "filtered", "over_long"
            elif limits.over_long == "truncate":
                if limits.truncation_mode == "keep_end":
                    document.begin = end - limits.max_packed_len
                end = document.begin + limits.max_packed_len
        document.end = end
        if document.lost is None and limits.drop_untrained and not document.num_trained(document.begin, end):
            document.lost = "filtered", "nothing_to_train"


def _is_message(message: object) -> bool:
    return isinstance(message, dict) and all(isinstance(message.get(key), str) for key in ("role", "content"))


def _content_bytes(value: object) -> int:
    messages = [m for m in value if isinstance(m, dict)] if isinstance(value, list) else []
    return sum(len(m["content"].encode()) for m in messages if isinstance(m.get("content"), str))
