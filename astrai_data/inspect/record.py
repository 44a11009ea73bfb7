"""One record through a pipeline, as far as its mask: what `astrai mask` shows.

The record is read and built exactly as a run does it, and not packed: its tokens are those of the document, before
packing may cut it. Where the pipeline names exactly one input, the record is read as one of it, with its renamed fields
and its domain.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from astrai_data.build import Builder, Built, untrained_roles
from astrai_data.build.strips import Strip
from astrai_data.config import InputSpec, PipelineConfig
from astrai_data.errors import InputError
from astrai_data.inspect.fields import first_records, told_fields
from astrai_data.inspect.runs import MaskRun, mask_runs
from astrai_data.ledger import Ledger
from astrai_data.pack import CUT_AFTER, CUT_BEFORE, Segments
from astrai_data.ragged import Ragged
from astrai_data.records import InputFile, RangeReader, RecordChunk, expand_inputs
from astrai_data.tokenizer import Tokenizer


@dataclass(frozen=True)
class MaskedRecord:
    """What a pipeline makes of one record.

    `outcome` is `kept`, `filtered` or `rejected`, `reason` and `message` say why not `kept`. `num_trained` counts
    labels that can be trained: flagged in `loss_mask` and not the first. A record filtered as `nothing_to_train` has
    its tokens all the same; other lost records have none. `warnings` are the pipeline's own, for any record.
    """

    outcome: str
    reason: str | None
    message: str | None
    domain: str | None
    cut_before: bool
    cut_after: bool
    num_tokens: int
    num_trained: int
    runs: list[MaskRun]
    ids: list[int]
    loss_mask: list[int]
    warnings: list[str]

    def to_dict(self) -> dict:
        """JSON-ready."""
        return asdict(self)


def mask_record(path: str | Path, config: PipelineConfig, tokenizer: Tokenizer) -> MaskedRecord:
    """Build the first record of the file `path`.

    Raises:
        InputError: there is no such file, or no record in it.
        PipelineConfigError: the configuration cannot be run.
    """
    config.check_runnable()
    builder = Builder(config, tokenizer)
    file = expand_inputs([_spec(str(path), config)])[0]
    chunk = _first_chunk(file, builder, config)
    first_row = chunk.columns.column("position")[0].as_py() if chunk.columns.num_rows else None
    if chunk.rejects and (first_row is None or chunk.rejects[0].position < first_row):
        return _lost(builder, "rejected", chunk.rejects[0].reason, chunk.rejects[0].message)
    record = chunk.columns.slice(0, 1).add_column(0, "input", pa.array([0], pa.int32()))
    ledger = Ledger()
    built = builder.build(record, file.domain, ledger)
    if len(built.documents):
        return _kept(builder, built)
    outcome, reason = _fate(ledger)
    if reason == "missing_field":
        return _lost(builder, outcome, reason, _missing(builder, file))
    if reason != "nothing_to_train":
        return _lost(builder, outcome, reason, built.refused[0].message if built.refused else None)
    lenient = Builder(config.with_values({"preprocessing.drop_untrained": False}), tokenizer)
    shown = _kept(lenient, lenient.build(record, file.domain, Ledger()))
    roles = untrained_roles(config, [record])
    message = f"{roles.told}; {roles.hint}" if roles else None
    return MaskedRecord(**vars(shown) | {"outcome": outcome, "reason": reason, "message": message})


def _spec(path: str, config: PipelineConfig) -> InputSpec:
    only = config.data.inputs[0] if len(config.data.inputs) == 1 else None
    return InputSpec(path=path, domain=only.domain, fields=only.fields) if only else InputSpec(path=path)


def _missing(builder: Builder, file: InputFile) -> str:
    """Which fields would have made a document, under the names they have in this file, and which the records have."""
    names = [field.name for field in builder.fields if field.kind in ("text", "json")]
    own = [(file.fields.get(name, name), name) for name in names]
    told = [repr(theirs) if theirs == ours else f"{theirs!r} (renamed {ours!r})" for theirs, ours in own]
    return f"absent or null: {', '.join(told)}; the records of this file have: {told_fields(first_records(file))}"


def _first_chunk(file: InputFile, builder: Builder, config: PipelineConfig) -> RecordChunk:
    limit = config.data.max_record_bytes
    for chunk in RangeReader(file, 0, file.size, builder.fields, max_record_bytes=limit):
        if chunk.num_read:
            return chunk
    raise InputError(
        "the file holds no record",
        where=file.url,
        got=f"{file.size:,} bytes without a record",
        wanted=f"at least one record of format {file.format}",
        hint="name another file, or write a record into this one",
    )


def _fate(ledger: Ledger) -> tuple[str, str]:
    lost = [row for row in ledger.to_rows() if row[0] == "records" and row[2] in ("filtered", "rejected")]
    return lost[0][2], lost[0][3]


def _lost(builder: Builder, outcome: str, reason: str, message: str | None) -> MaskedRecord:
    return MaskedRecord(outcome, reason, message, None, False, False, 0, 0, [], [], [], builder.warnings)


def _kept(builder: Builder, built: Built) -> MaskedRecord:
    documents, sequence = built.documents, built.documents.sequence
    tokens, lengths, numbers = sequence.tokens[0], sequence.run_lengths[0], sequence.run_rules[0]
    rules = [(rule.name, rule.trained) for rule in builder.rules]
    trained = np.array([flag for _, flag in rules], bool)
    flags = int(documents.flags[0])
    return MaskedRecord(
        outcome="kept",
        reason=None,
        message=None,
        domain=documents.domains[int(documents.domain[0])],
        cut_before=bool(flags & CUT_BEFORE),
        cut_after=bool(flags & CUT_AFTER),
        num_tokens=len(tokens),
        num_trained=_num_trained(sequence, trained),
        runs=mask_runs(builder.tokenizer, rules, Ragged.from_lengths(tokens, lengths), numbers),
        ids=tokens.tolist(),
        loss_mask=np.repeat(trained[numbers].astype(int), lengths).tolist(),
        warnings=builder.warnings,
    )


def _num_trained(sequence: Strip, trained: np.ndarray) -> int:
    """Labels of the first sequence that can be trained, were it one segment."""
    zero = np.zeros(1, np.int64)
    runs = (sequence.run_lengths, sequence.run_rules)
    return int(Segments(zero, sequence.tokens.lengths, zero, zero, zero, *runs).num_trained(trained)[0])
