"""Small real stores, made with the store's own writer, and the plain Python truth of what is in them."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import tokenizers as tk
import xxhash

from astrai_data.ledger import Ledger
from astrai_data.pack import gather, plan
from astrai_data.ragged import Ragged
from astrai_data.store import MaskRule, TaskWriter, assemble, read_tokenizer_files
from astrai_data.store.identity import config_hash, plan_hash
from astrai_data.store.tables import DOCUMENTS_SCHEMA, INPUTS_SCHEMA
from tests.data.toys import write_bpe_tokenizer

RULES = [MaskRule("prompt", False), MaskRule("response", True)]
CAPACITY = 64
LONG = "def add(a, b):\n    return a + b\n\n" * 12


@dataclass
class Document:
    """One document as it is written; `num_masked` leading tokens are under the rule `prompt`."""

    text: str
    domain: str | None = None
    split: str = "train"
    position: int = 0
    meta: dict | None = None
    num_masked: int = 0
    input: int = 0
    ids: list[int] = field(default_factory=list)

    @property
    def mask(self) -> list[int]:
        return [int(i >= self.num_masked) for i in range(len(self.ids))]


DOCUMENTS = [
    [
        Document("The quick brown fox jumps over the lazy dog.", None, position=0, meta={"url": "a", "score": "0.5"}),
        Document("Über allen Gipfeln ist Ruh 😀 今日は", "web", position=60, num_masked=5),
        Document("[red]no markup[/red] \x1b[31mno escape\x07\u202e", "web", position=120, num_masked=2),
        Document("In 1987 there were 365 days.", None, "validation", 200, {"url": "b", "score": None}, 3),
    ],
    [
        Document(LONG, "code", position=0, num_masked=10, input=1),
        Document("numbers into text", None, position=500, input=1),
        Document("A tokenizer turns text", "code", "validation", 600, None, 1, 1),
    ],
]
REJECTS = [
    [{"input": 0, "position": 300, "length": 7, "reason": "invalid_json", "message": "no value", "raw": b"{broken"}],
    [
        {"input": 1, "position": 700, "length": 3, "reason": "invalid_utf8", "message": "byte 0", "raw": b"\xff\x1b1"},
        {"input": 1, "position": 710, "length": 2, "reason": "invalid_json", "message": "no value", "raw": b"{]"},
    ],
]


def write_small_store(root: Path, *, storage_format: str = "arrow", dtype=np.uint16, keep_fields: bool = True) -> list:
    """Write a store of two tasks at `root`; its documents, encoded, in the order of their ids."""
    tokenizer_dir = write_bpe_tokenizer(root.parent / "tokenizer")
    tokenizer = tk.Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
    documents = [[_encoded(document, tokenizer) for document in task] for task in DOCUMENTS]
    for key, task, rejects in zip("ab", documents, REJECTS, strict=True):
        write_task(root, key * 32, task, rejects, storage_format, dtype, keep_fields)
    commit(root, ["a" * 32, "b" * 32], [[0], [0, 1]], tokenizer_dir, np.dtype(dtype).name)
    return [document for task in documents for document in task]


def write_task(root, key, documents, rejects, storage_format="arrow", dtype=np.uint16, keep_fields=True) -> None:
    writer = TaskWriter(root, key, storage_format=storage_format)
    ledger, trained = Ledger(), np.zeros(len(documents), np.int64)
    for split, domain in sorted({(d.split, d.domain) for d in documents}, key=lambda pair: (pair[0], pair[1] or "")):
        chosen = [i for i, d in enumerate(documents) if (d.split, d.domain) == (split, domain)]
        rows, segments = _packed([documents[i] for i in chosen], np.array(chosen, np.int32), dtype)
        writer.write_part(split, domain, rows, segments)
        counts = segments.num_trained(np.array([rule.trained for rule in RULES]))
        np.add.at(trained, segments.document, counts)
        _account(ledger, domain, [documents[i] for i in chosen], len(rows), int(counts.sum()))
    for reject in rejects:
        ledger.add("records", None, "read", 1)
        ledger.add("records", None, "rejected", 1, reject["reason"])
    writer.finish(_table(documents, trained, keep_fields), ledger, rejects, [])


def commit(root, keys, task_inputs, tokenizer_dir, dtype="uint16", packing=None) -> None:
    names = ["text.jsonl", "more.jsonl"]
    inputs = pa.table([names, [1000, 2000], ["jsonl"] * 2, [5, 6]], schema=INPUTS_SCHEMA)
    config = {"output": {"storage_format": "arrow"}}
    hashed = config_hash(config, "0" * 64, "1" * 64)
    assemble(
        root,
        task_keys=keys,
        task_inputs=task_inputs,
        inputs=inputs,
        columns={"sequence": dtype},
        config=config,
        config_hash=hashed,
        plan_hash=plan_hash(hashed, keys),
        tokenizer_files=read_tokenizer_files(tokenizer_dir),
        ids_sha256="0" * 64,
        template_sha256="1" * 64,
        mask_rules=RULES,
        packing=packing or {"strategy": "bfd", "max_packed_len": CAPACITY},
        has_loss_mask=True,
        run={},
    )


def _encoded(document: Document, tokenizer: tk.Tokenizer) -> Document:
    return Document(**vars(document) | {"ids": tokenizer.encode(document.text, add_special_tokens=False).ids})


def _packed(documents: list[Document], ordinals: np.ndarray, dtype):
    tokens = Ragged.from_rows([d.ids for d in documents], dtype)
    runs = [[d.num_masked, len(d.ids) - d.num_masked] for d in documents]
    lengths = Ragged.from_rows(runs, np.int32)
    rules = Ragged.from_rows([[0, 1]] * len(documents), np.uint16)
    n = len(documents)
    planned = plan("bfd", tokens.lengths, CAPACITY, split=True)
    return gather(tokens, lengths, rules, np.zeros(n, np.int64), ordinals, np.zeros(n, np.uint8), planned)


def _account(ledger: Ledger, domain: str | None, documents: list[Document], num_rows: int, trained: int) -> None:
    tokens, num_bytes = sum(len(d.ids) for d in documents), sum(len(d.text.encode()) for d in documents)
    for balance, what, count, reason in (
        ("records", "read", len(documents) + 2, ""),
        ("records", "kept", len(documents), ""),
        ("records", "filtered", 2, "empty_text"),
        ("text_bytes", "read", num_bytes, ""),
        ("text_bytes", "kept", num_bytes, ""),
        ("tokens", "from_text", tokens, ""),
        ("tokens", "trained", trained, "response"),
        ("tokens", "masked", tokens - trained, "prompt"),
        ("slots", "slots", num_rows * CAPACITY, ""),
        ("slots", "tokens", tokens, ""),
        ("slots", "padding", num_rows * CAPACITY - tokens, ""),
    ):
        ledger.add(balance, domain, what, count, reason)


def _table(documents: list[Document], trained: np.ndarray, keep_fields: bool) -> pa.Table:
    columns = {
        "input": [d.input for d in documents],
        "position": [d.position for d in documents],
        "text_hash": [xxhash.xxh3_128_digest(d.text.encode()) for d in documents],
        "text_bytes": [len(d.text.encode()) for d in documents],
        "num_tokens": [len(d.ids) for d in documents],
        "num_trained": trained,
        "domain": [d.domain for d in documents],
        "split": [d.split for d in documents],
    }
    schema = DOCUMENTS_SCHEMA
    if keep_fields:
        kind = pa.struct([("url", pa.large_string()), ("score", pa.large_string())])
        columns["meta"], schema = [d.meta for d in documents], schema.append(pa.field("meta", kind))
    return pa.table(columns, schema=schema)
