"""A store as JSON lines: one document a line, its text decoded again.

    {"text": ..., "domain": ..., "split": ..., "source": ..., "position": ..., "meta": {...}, "truncated": false}

A line is a document, not a row: rows are a matter of packing, documents are what went in, and `source` and
`position` lead back to the raw record. The pieces of a document that packing cut are joined again. `text` is
what the tokens say, special tokens included (a chat keeps its turns, a text its end mark) unless they are
left out; `truncated` tells that a length limit cut some of it away. Lines are in the order of the document
ids.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from astrai_data.pack.segments import CUT_AFTER, CUT_BEFORE
from astrai_data.ragged import Ragged, offsets_of
from astrai_data.store.documents import read_documents
from astrai_data.store.token_store import TokenStore

_PER_BATCH = 4096  # documents decoded together


def write_jsonl(store: TokenStore, path: Path, *, skip_special_tokens: bool = False) -> int:
    """Write every document of `store` (the split it was opened with) to `path`; returns how many."""
    count = 0
    with open(path, "wb") as file:
        for line in document_lines(store, skip_special_tokens=skip_special_tokens):
            file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
            count += 1
    return count


def document_lines(store: TokenStore, *, skip_special_tokens: bool = False) -> Iterator[dict]:
    """The documents of `store` as dicts; one task's tokens are in memory at a time."""
    tokenizer, tasks = store.tokenizer(), store.table("tasks")
    names = store.table("inputs")["name"].to_pylist()
    task_of = np.array([shard.task for shard in store.shards], np.int64)
    for task in range(tasks.num_rows):
        documents = read_documents(store.root, tasks.slice(task, 1))
        ordinals, tokens, truncated = _joined_pieces(store, np.flatnonzero(task_of == task).tolist())
        for begin in range(0, len(ordinals), _PER_BATCH):
            chosen = slice(begin, begin + _PER_BATCH)
            rows = Ragged(tokens.values, tokens.offsets[begin : begin + _PER_BATCH + 1])
            texts = tokenizer.decode_batch(rows, skip_special_tokens=skip_special_tokens)
            yield from _lines(documents.take(ordinals[chosen]), texts, truncated[chosen].tolist(), names)


def _lines(documents: pa.Table, texts: list[str], truncated: list[bool], names: list[str]) -> Iterator[dict]:
    kept = ["meta"] if "meta" in documents.column_names else []
    entries = documents.select(["domain", "split", "input", "position", *kept]).to_pylist()
    for entry, text, cut in zip(entries, texts, truncated, strict=True):
        source = names[entry.pop("input")]
        line = {"text": text, "domain": entry["domain"], "split": entry["split"], "source": source}
        yield line | {"position": entry["position"], "meta": entry.get("meta") or {}, "truncated": cut}


def _joined_pieces(store: TokenStore, shards: list[int]) -> tuple[np.ndarray, Ragged, np.ndarray]:
    """Documents of some shards of one task.

    Returns:
        ordinals: int64 [n], rising.
        tokens: their tokens, pieces joined, [n] rows.
        truncated: bool [n], whether tokens were cut away.
    """
    if not shards:
        return np.empty(0, np.int64), Ragged.from_rows([], np.int32), np.empty(0, bool)
    segments = [store.segments(shard) for shard in shards]
    document, start, length, flags = (
        np.concatenate([getattr(part, name) for part in segments])
        for name in ("document", "token_start", "length", "flags")
    )
    flat = np.concatenate([store.tokens(shard).values for shard in shards])
    order = np.lexsort((start, document))
    pieces = Ragged.from_lengths(flat, length).take(order)
    ordinals, first = np.unique(document[order], return_index=True)
    last = np.append(first[1:], len(order)) - 1
    truncated = (flags[order[first]] & CUT_BEFORE) | (flags[order[last]] & CUT_AFTER) > 0
    bounds = offsets_of(length[order])[np.append(first, len(order))]
    return ordinals, Ragged(pieces.values, bounds), truncated
