"""Building records in memory for tests: what the reader would hand the builder, and what comes out, as plain lists."""

from itertools import pairwise

import numpy as np
import orjson
import pyarrow as pa

from astrai_data.build import Builder
from astrai_data.config import PipelineConfig
from astrai_data.ledger import Ledger
from astrai_data.tokenizer import Tokenizer


def columns_of(records: list[dict], builder: Builder) -> pa.RecordBatch:
    columns = {
        "input": pa.array(np.zeros(len(records), np.int32)),
        "position": pa.array(np.arange(len(records), dtype=np.int64)),
    }
    for spec in builder.fields:
        columns[spec.column] = pa.array([_cell(record.get(spec.name), spec.kind) for record in records], spec.type)
    return pa.RecordBatch.from_pydict(columns)


def _cell(value, kind):
    if value is None:
        return None
    if kind == "json":
        return orjson.dumps(value)
    if kind == "domain":
        return value if isinstance(value, str) else None
    return value if isinstance(value, str) or kind == "text" else orjson.dumps(value).decode()


def build(config: dict, tokenizer_dir, records: list[dict], *, domain: str | None = None):
    """(list of (ids, mask), Built, Ledger) of the kept documents."""
    builder = Builder(PipelineConfig.from_dict(config), Tokenizer.from_pretrained(tokenizer_dir))
    ledger = Ledger()
    built = builder.build(columns_of(records, builder), domain, ledger)
    trained = np.array([rule.trained for rule in builder.rules])
    sequence = built.documents.sequence
    flags = np.repeat(trained[sequence.run_rules.flat], sequence.run_lengths.flat).astype(int)
    bounds = (sequence.tokens.offsets - sequence.tokens.offsets[0]).tolist()
    masks = [flags[begin:end].tolist() for begin, end in pairwise(bounds)]
    return [(row.tolist(), mask) for row, mask in zip(sequence.tokens, masks, strict=True)], built, ledger
