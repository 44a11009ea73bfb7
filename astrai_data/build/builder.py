"""The builder: records of a chunk become documents, and every record and token that does not is entered in the ledger.

It works in columns: each section makes strips for all records of the chunk, the strips are joined, the caps applied,
the kept rows taken. Python loops over records only where a string must be looked at or a template rendered; tokenizing
dominates (`benchmarks/stages.py`).
"""

import struct
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from astrai_data.build.account import account
from astrai_data.build.caps import Capped, apply_caps
from astrai_data.build.documents import DocumentBatch
from astrai_data.build.draft import Draft, draft_sections
from astrai_data.build.rules import mask_rules
from astrai_data.build.token_dtype import sequence_dtype
from astrai_data.config import PipelineConfig
from astrai_data.errors import PipelineConfigError, TokenizerError
from astrai_data.ledger import Ledger
from astrai_data.mask_rule import MaskRule
from astrai_data.records import FieldSpec
from astrai_data.tokenizer import ChatRefusal, Tokenizer


@dataclass(frozen=True)
class Built:
    """A chunk built: its kept documents, and its records that must be rejected (record number -> refusal)."""

    documents: DocumentBatch
    refused: dict[int, ChatRefusal]


class Builder:
    """Turns record columns into documents as one configuration says.

    Attributes:
        fields: the columns it needs, to be read by `astrai_data.records`.
        rules: the mask rules, by stored number.
        dtype: of the stored token ids, and of the documents that it builds.
        warnings: what the user should know before the run.
    """

    def __init__(self, config: PipelineConfig, tokenizer: Tokenizer) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.fields: list[FieldSpec] = wanted_fields(config)
        self.rules: tuple[MaskRule, ...] = mask_rules(config)
        self.dtype = sequence_dtype(config, tokenizer.max_id)
        self._trained = np.array([rule.trained for rule in self.rules], bool)
        self._rule_numbers = {rule: number for number, rule in enumerate(self.rules)}
        has_template = any(section.template for section in config.input.sections or [])
        if has_template:
            _check_bos(tokenizer)
        self._eos_id = _eos_id(config, tokenizer)
        self.warnings = _warnings(config, tokenizer, self._eos_id)
        self._fewest_tokens = 2 if has_template else 1

    def build(self, columns: pa.RecordBatch, default_domain: str | None, ledger: Ledger) -> Built:
        """Build the records of `columns`: `input`, `position`, and a column for each of `fields`.

        `default_domain` is the domain of records that name none. What becomes of every record and token up to
        packing is entered in `ledger`.
        """
        draft = draft_sections(self.config, self.tokenizer, columns, self._rule_numbers, self._eos_id, self.dtype)
        capped = apply_caps(self.config, draft.sequence, self._trained, self._fewest_tokens)
        lost = _lost(draft, capped)
        domain, domains = _domains(self.config, columns, default_domain)
        account(ledger, draft, capped.num_truncated, lost, domain, domains)
        kept = np.delete(np.arange(columns.num_rows), list(lost))
        text_hash = draft.text_hashes(kept)
        documents = DocumentBatch(
            input=columns.column("input").to_numpy()[kept],
            position=columns.column("position").to_numpy()[kept],
            domain=domain[kept],
            domains=domains,
            validation=in_validation(text_hash, self.config.run.validation_fraction, self.config.run.seed),
            text_hash=b"".join(text_hash),
            text_bytes=draft.num_bytes[kept],
            meta=_meta(self.config, columns, kept),
            sequence=capped.sequence if len(kept) == columns.num_rows else capped.sequence.take(kept),
            token_start=capped.token_start[kept],
            flags=capped.flags[kept],
        )
        return Built(documents, draft.refused)


def wanted_fields(config: PipelineConfig) -> list[FieldSpec]:
    """The record fields that the configuration reads, each once."""
    wanted = [FieldSpec(s.field, "json" if s.template else "text") for s in config.input.sections or []]
    wanted += [FieldSpec(name, "meta") for name in config.data.keep_fields]
    if config.output.domain_key:
        wanted.append(FieldSpec(config.output.domain_key, "domain"))
    return list(dict.fromkeys(wanted))


def in_validation(text_hashes: list[bytes], fraction: float, seed: int) -> np.ndarray:
    """bool [n]: xxh3_64(text hash, seed) < fraction * 2^64, so that equal texts share a side."""
    if fraction <= 0:
        return np.zeros(len(text_hashes), bool)
    threshold, salt = int(fraction * 2**64), struct.pack("<Q", seed)
    drawn = (xxhash.xxh3_64_intdigest(text_hash + salt) < threshold for text_hash in text_hashes)
    return np.fromiter(drawn, bool, len(text_hashes))


def _lost(draft: Draft, capped: Capped) -> dict[int, tuple[str, str]]:
    """Record number -> ("rejected" | "filtered", reason) of every record that becomes no document."""
    lost = {row: ("filtered", reason) for row, reason in capped.dropped.items()}
    for row in np.flatnonzero(draft.sequence.tokens.lengths == 0).tolist():
        lost[row] = ("filtered", draft.skipped.get(row, "missing_field"))
    return lost | {row: ("rejected", refusal.reason) for row, refusal in draft.refused.items()}


def _domains(
    config: PipelineConfig, columns: pa.RecordBatch, default: str | None
) -> tuple[np.ndarray, tuple[str | None, ...]]:
    """(number of each record's domain int32 [n], the domains in order of appearance)."""
    if not config.output.domain_key:
        return np.zeros(columns.num_rows, np.int32), (default,)
    column = columns.column(f"domain:{config.output.domain_key}")
    if default is not None:
        column = column.fill_null(default)
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int32), tuple(encoded.dictionary.to_pylist())


def _meta(config: PipelineConfig, columns: pa.RecordBatch, kept: np.ndarray) -> pa.StructArray | None:
    names = list(config.data.keep_fields)
    if not names:
        return None
    arrays = [columns.column(f"meta:{name}").take(pa.array(kept)) for name in names]
    return pa.StructArray.from_arrays(arrays, names)


def _warnings(config: PipelineConfig, tokenizer: Tokenizer, eos_id: int | None) -> list[str]:
    warnings = [
        f"the tokenizer's files name {token!r} as {name}, but it is not in the vocabulary: it counts as absent"
        for name, token in tokenizer.missing_tokens.items()
    ]
    if eos_id is None and any(section.append_eos for section in config.input.sections or []):
        warnings.append("the tokenizer has no EOS token: documents end without one (append_eos is on by default)")
    return warnings


def _check_bos(tokenizer: Tokenizer) -> None:
    """A chat begins with BOS if the tokenizer has one, so it must be known whether it does."""
    missing = tokenizer.missing_tokens.get("bos_token")
    if missing is not None:
        raise TokenizerError(
            "the bos_token that chats begin with is not in the vocabulary",
            where="tokenizer_config.json",
            got=repr(missing),
            wanted="a token of tokenizer.json",
            hint="name the right token, or set bos_token to null if there is none",
        )


def _eos_id(config: PipelineConfig, tokenizer: Tokenizer) -> int | None:
    """The id that `append_eos` appends; None if nothing asks for it or, where it is only a default, none exists."""
    asking = [section for section in config.input.sections or [] if section.append_eos]
    if not asking or "eos_token" in tokenizer.special_tokens:
        return tokenizer.eos_token_id if asking else None
    if any(section.append_eos_explicit for section in asking):
        missing = tokenizer.missing_tokens.get("eos_token")
        named = f"special tokens {sorted(tokenizer.special_tokens)}"
        raise PipelineConfigError(
            "append_eos is on, but the tokenizer has no EOS token",
            where="input.sections[].append_eos",
            got=named if missing is None else f"eos_token {missing!r}, which is not in the vocabulary",
            wanted="a tokenizer whose tokenizer_config.json names an eos_token of its vocabulary",
            hint="set append_eos to false, or name the end-of-document token in tokenizer_config.json",
        )
    return None
