"""Running files of any kind, and what became of each record: kept with its text, filtered, or rejected and why."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from astrai_data import Pipeline, PipelineConfig, TokenStore
from astrai_data.ledger import Ledger
from astrai_data.ragged import Ragged, offsets_of

RECORD_REASONS = {"invalid_json", "invalid_utf8", "not_an_object", "wrong_type", "record_too_large", "damaged_file"}
CHAT_REASONS = {"not_a_conversation", "template_error", "template_prefix", "special_token_in_content", "not_unicode"}
CHAT_REASONS |= {"template_marks", "special_token_in_text"}
TEXT = {
    "version": 2,
    "data": {"max_record_bytes": 1 << 21},
    "input": {"sections": [{"field": "text", "action": "train", "append_eos": False}]},
    "preprocessing": {"max_packed_len": 64, "drop_untrained": False},
    "run": {"max_reject_ratio": 1.0},
}
CHAT = TEXT | {
    "input": {"sections": [{"field": "messages", "action": "$role", "template": True}]},
    "mask": {"assistant": "train"},
}


@dataclass(frozen=True)
class Fates:
    """texts: (source, position) -> decoded text of each kept document; filtered: counts by filter; rejects: in order.

    num_read: records read.
    """

    texts: dict[tuple[str, int], str]
    filtered: Counter
    rejects: list[dict]
    num_read: int


def run_files(root: Path, tokenizer: Path, files: dict[str, bytes], config: dict = TEXT, **options) -> Fates:
    """Run `files` (name -> bytes), and what lies in `root/in` already, into `root/store`."""
    (root / "in").mkdir(exist_ok=True)
    for name, data in files.items():
        (root / "in" / name).write_bytes(data)
    Pipeline(PipelineConfig.from_dict(config), [root / "in"], root / "store", tokenizer).run(**options)
    return fates(root / "store")


def fates(root: Path) -> Fates:
    """Read them from a store, which is verified, whose balances must close, and whose rejects must be readable."""
    store = TokenStore.open(root, split=None)
    assert store.verify() == []
    ledger = Ledger.from_rows([list(row.values()) for row in store.table("ledger").to_pylist()])
    ledger.check()
    rejects = list(store.rejects())
    filtered = Counter()
    for balance, _, what, reason, count in ledger.to_rows():
        if (balance, what) == ("records", "filtered"):
            filtered[reason] += count
    texts, num_read = _texts(store), ledger.total("records", "read")
    assert num_read == len(texts) + filtered.total() + len(rejects)
    for reject in rejects:
        check_reject(reject)
    return Fates(texts, filtered, rejects, num_read)


def check_reject(reject: dict) -> None:
    """A person can act on it: a known reason, what was found in plain words, and the record itself."""
    message = reject["message"]
    assert reject["reason"] in RECORD_REASONS | CHAT_REASONS, reject
    assert 10 < len(message) < 1000, reject
    assert message.isprintable(), reject
    assert not any(word in message for word in ("Traceback", "object at 0x", "<class", "memory")), reject
    assert ("raw" in reject) != ("raw_base64" in reject)
    assert reject["position"] >= 0


def _texts(store: TokenStore) -> dict[tuple[str, int], str]:
    documents = store.documents()
    names = store.table("inputs")["name"].to_pylist()
    pieces: dict[int, list[tuple[int, np.ndarray]]] = {}
    for number, shard in enumerate(store.shards):
        flat, segments = store.tokens(number).flat, store.segments(number)
        bounds = pairwise(offsets_of(segments.length).tolist())
        for document, start, (begin, end) in zip(segments.document, segments.token_start, bounds, strict=True):
            pieces.setdefault(shard.document_begin + int(document), []).append((int(start), flat[begin:end]))
    whole = [np.concatenate([ids for _, ids in sorted(pieces[i], key=lambda p: p[0])]) for i in sorted(pieces)]
    texts = store.tokenizer().decode_batch(Ragged.from_rows(whole, np.int32))
    places = zip(documents["input"].to_pylist(), documents["position"].to_pylist(), strict=True)
    return {(names[place], position): text for (place, position), text in zip(places, texts, strict=True)}
