"""Stores of given tokens for the loader's tests, and the plain Python truth of what a loader has to make of them."""

from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from astrai_data.ledger import Ledger
from astrai_data.load import PackedLoader
from astrai_data.pack import gather, plan
from astrai_data.ragged import Ragged
from astrai_data.store import (
    DOCUMENTS_SCHEMA,
    INPUTS_SCHEMA,
    MaskRule,
    TaskWriter,
    TokenStore,
    assemble,
    config_hash,
    plan_hash,
    read_tokenizer_files,
)

RULES = [MaskRule("prompt", False), MaskRule("response", True)]
Document = tuple[list[int], list[int]]


def numbered(lengths: list[int], first: int = 0) -> list[Document]:
    """Documents of the given lengths whose ids count on from `first`; the first third of each is a prompt."""
    documents = []
    for length in lengths:
        documents.append((list(range(first, first + length)), [int(i >= length // 3) for i in range(length)]))
        first += length
    return documents


def write_store(
    root: Path,
    tasks: list[list[Document]],
    *,
    strategy: str = "bfd",
    capacity: int | None = 16,
    mode: str = "doc_reset",
    split: str = "train",
) -> TokenStore:
    """A store with one part a task, of documents given as (ids, mask)."""
    keys = [f"{number:032x}" for number in range(len(tasks))]
    for key, documents in zip(keys, tasks, strict=True):
        _write_task(root, key, documents, strategy, capacity, split)
    tokenizer = root.parent / "tokenizer"
    tokenizer.mkdir(exist_ok=True)
    (tokenizer / "tokenizer.json").write_text('{"version":"1.0","model":{"type":"WordLevel","vocab":{}}}')
    hashed = config_hash({}, "", "")
    assemble(
        root,
        task_keys=keys,
        task_inputs=[[0]] * len(tasks),
        inputs=pa.table([["text"], [0], ["jsonl"], [1]], schema=INPUTS_SCHEMA),
        columns={"sequence": "uint16"},
        config={},
        config_hash=hashed,
        plan_hash=plan_hash(hashed, keys),
        tokenizer_files=read_tokenizer_files(tokenizer),
        ids_sha256="",
        template_sha256="",
        mask_rules=RULES,
        packing={"strategy": strategy, "max_packed_len": capacity},
        has_loss_mask=True,
        run={},
        position_ids_mode=mode,
    )
    return TokenStore.open(root, split)


def _write_task(root, key, documents, strategy, capacity, split) -> None:
    writer, n = TaskWriter(root, key, storage_format="arrow"), len(documents)
    tokens = Ragged.from_rows([ids for ids, _ in documents], np.uint16)
    ones = Ragged.from_lengths(np.ones(len(tokens.flat), np.int32), tokens.lengths)  # one run a token
    rules = Ragged.from_rows([mask for _, mask in documents], np.uint16)
    planned = plan(strategy, tokens.lengths, capacity, split=capacity is not None)
    rows, segments = gather(
        tokens, ones, rules, np.zeros(n, np.int64), np.arange(n, dtype=np.int32), np.zeros(n, np.uint8), planned
    )
    writer.write_part(split, None, rows, segments)
    trained = np.zeros(n, np.int64)
    np.add.at(trained, segments.document, segments.num_trained(np.array([False, True])))
    zeros, hashes = np.zeros(n, np.int64), pa.array([bytes(16)] * n, pa.binary(16))
    columns = [zeros.astype(np.int32), zeros, hashes, zeros, tokens.lengths, trained, pa.nulls(n, pa.string())]
    writer.finish(pa.table([*columns, pa.array([split] * n)], schema=DOCUMENTS_SCHEMA), Ledger(), [], [])


def labels_of(ids: list[int], mask: list[int]) -> list[int]:
    """The twin: token by token, the labels of one segment."""
    return [ids[t + 1] if t + 1 < len(ids) and mask[t + 1] else -100 for t in range(len(ids))]


def plain(batch: dict) -> dict:
    """A batch as lists and numbers, to be compared."""
    return {key: value if isinstance(value, int) else value.tolist() for key, value in batch.items()}


def take(loader: PackedLoader, count: int) -> list[dict]:
    """The next `count` batches, plain."""
    return [plain(batch) for batch in islice(loader, count)]


def first_ids(batches: list[dict]) -> list[int]:
    """The first token of each batch: names the row, where a batch is one row of `numbered` documents."""
    return [batch["input_ids"][0] for batch in batches]
