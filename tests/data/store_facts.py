"""A store held against its model: every document, token, mask, cut, reject and sum, read through the public API."""

import base64
import json
from collections import Counter
from itertools import pairwise

import numpy as np

from astrai_data import TokenStore
from astrai_data.ledger import BALANCES

from .store_model import Piece, StoreModel


def check_store(store: TokenStore, model: StoreModel) -> None:
    """Raise AssertionError where `store` (all splits) is not what the model says."""
    assert store.verify() == []
    check_documents(store, model)
    check_rejects(store, model)
    check_parts(store, model)
    check_rows(store, model)
    check_ledger(store, model)


def check_documents(store: TokenStore, model: StoreModel) -> None:
    """Every kept record once, in order, with what is noted of it."""
    pieces: dict[int, list[Piece]] = {}
    for piece in (piece for part in model.parts for row in part.rows for piece in row):
        pieces.setdefault(piece[0], []).append(piece)
    rows = store.documents().to_pylist()
    assert len(rows) == len(model.documents) == store.num_documents
    for number, (row, document) in enumerate(zip(rows, model.documents, strict=True)):
        meta = row.pop("meta", None) or {}
        assert meta.keys() == document.meta.keys()
        assert all(_same_meta(meta[name], value) for name, value in document.meta.items())
        wanted = {
            "input": document.place[0],
            "position": document.place[1],
            "text_hash": document.text_hash,
            "text_bytes": document.num_bytes,
            "num_tokens": document.end - document.begin,
            "num_trained": sum(document.num_trained(begin, end) for _, begin, end in pieces[number]),
            "domain": document.domain,
            "split": "validation" if document.validation else "train",
        }
        assert row == wanted, {k: (row[k], wanted[k]) for k in row if row[k] != wanted[k]}
    assert store.table("inputs")["records"].to_pylist() == model.num_records


def _same_meta(kept: str | None, value: object) -> bool:
    return kept == value if value is None or isinstance(value, str) else json.loads(kept) == value


def check_rejects(store: TokenStore, model: StoreModel) -> None:
    """Every rejected record once, in order, with its reason and its bytes."""
    names = store.table("inputs")["name"].to_pylist()
    rejects = list(store.rejects())
    found = [(names.index(reject["source"]), reject["position"], reject["reason"]) for reject in rejects]
    assert found == model.rejects
    for reject in rejects:
        raw = reject["raw"].encode() if "raw" in reject else base64.b64decode(reject["raw_base64"])
        assert reject["raw_truncated"] or len(raw) == reject["length"]


def check_parts(store: TokenStore, model: StoreModel) -> None:
    """Every segment is the piece of its document that the plan says, with its tokens, flags and mask."""
    told = [(shard.split, shard.domain) for shard in store.shards]
    assert told == [(part.split, part.domain) for part in model.parts]
    names = [(rule.name, rule.trained) for rule in store.mask_rules]
    for number, part in enumerate(model.parts):
        segments, tokens = store.segments(number), store.tokens(number).flat.tolist()
        document = (segments.document + store.shards[number].document_begin).tolist()
        rows: list[list[Piece]] = [[] for _ in range(store.shards[number].num_rows)]
        at = 0
        for index, row in enumerate(segments.row.tolist()):
            length, begin = int(segments.length[index]), int(segments.token_start[index])
            whole = model.documents[document[index]].tokens
            rows[row].append((document[index], begin, begin + length))
            wanted = whole[begin : begin + length]
            assert tokens[at : at + length] == [token for token, _, _ in wanted]
            runs = zip(segments.mask_rules[index].tolist(), segments.mask_lengths[index].tolist(), strict=True)
            assert [names[rule] for rule, n in runs for _ in range(n)] == [rule for _, rule, _ in wanted]
            assert segments.flags[index] == (begin > 0) + 2 * (begin + length < len(whole))
            at += length
        assert at == len(tokens)
        in_order = not model.config.run.shuffle_rows
        assert rows == part.rows if in_order else sorted(rows) == sorted(part.rows)


def check_rows(store: TokenStore, model: StoreModel) -> None:
    """What training sees: masks, borders and positions of every row, and the sum of its labels."""
    num_trained = num_tokens = 0
    mode, limits = model.config.output.position_ids_mode, model.config.preprocessing
    for row in (store.row(index) for index in range(store.num_rows)):
        borders = np.cumsum([0, *row.segment_lengths]).tolist()
        labels = row.loss_mask.copy()
        labels[borders[:-1]] = False
        num_trained += int(labels.sum())
        num_tokens += len(row.sequence)
        assert borders[-1] == len(row.sequence) <= limits.max_packed_len
        one_range = list(range(len(row.sequence)))
        by_segment = [place for begin, end in pairwise(borders) for place in range(end - begin)]
        wanted = {"none": None, "continuous": one_range, "doc_reset": by_segment}[mode]
        assert wanted == (None if row.position_ids is None else row.position_ids.tolist())
    assert num_trained == store.num_trained == sum(store.documents()["num_trained"].to_pylist())
    assert num_tokens == store.num_tokens == sum(store.documents()["num_tokens"].to_pylist())
    dtype = model.config.dtype_of("sequence")
    assert store.manifest.columns == {"sequence": "uint16" if dtype == "auto" else dtype}
    assert store.manifest.storage_format == model.config.output.storage_format


def check_ledger(store: TokenStore, model: StoreModel) -> None:
    """The ledger is the model's, entry by entry, and balances."""
    ledger = Counter()
    for entry in store.table("ledger").to_pylist():
        ledger[entry["balance"], entry["domain"], entry["what"], entry["reason"]] = entry["count"]
    assert {k: n for k, n in ledger.items() if model.ledger[k] != n} == {
        k: model.ledger[k] for k in [*ledger, *model.ledger] if model.ledger[k] != ledger[k]
    }
    for balance, (came, went) in BALANCES.items():
        for domain in {key[1] for key in ledger}:
            here = {key: n for key, n in ledger.items() if key[:2] == (balance, domain)}
            assert sum(n for k, n in here.items() if k[2] in came) == sum(n for k, n in here.items() if k[2] in went)
