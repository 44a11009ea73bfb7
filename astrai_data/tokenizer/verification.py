"""Is the accelerated backend equal to the truth for this tokenizer? Tried, not trusted.

Adversarial strings always, then as much of a sample of the input as the time allows, each with special tokens parsed
and as text. One difference anywhere means that `tokenizers` is used.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import numpy as np
import orjson

from astrai_data.errors import TokenizerError
from astrai_data.ragged import Ragged
from astrai_data.tokenizer.adversarial import adversarial_texts
from astrai_data.tokenizer.alignment import count_bytes
from astrai_data.tokenizer.backends import Backend, check_backend_name, open_backend
from astrai_data.tokenizer.files import read_files
from astrai_data.tokenizer.vocabulary import Vocabulary, parse_definition

_TEXTS_PER_CALL = 64
_MAX_LETTERS = 100_000


@dataclass(frozen=True)
class BackendCheck:
    """What was tried and found.

    Attributes:
        equal: no difference was seen.
        reason: why the accelerated backend may not be used; "" if it may.
        num_texts, num_bytes: what was compared, adversarial strings included.
        seconds: time spent.
    """

    equal: bool
    reason: str
    num_texts: int
    num_bytes: int
    seconds: float


def choose_backend(path: str | Path, requested: str, texts: list[str], *, budget_s: float = 10.0) -> tuple[str, dict]:
    """Resolve `requested` (`auto` or a backend's name) to a backend, and a record of how, for `run.json`.

    Raises:
        TokenizerError: the name is unknown, or `fastokens` was asked for by name and is not equal.
    """
    if requested == "tokenizers":
        return requested, _record(requested, requested, "asked for", None)
    if requested != "auto":
        check_backend_name(requested)
    check = check_backend(path, texts, budget_s=budget_s)
    if check.equal:
        return "fastokens", _record(requested, "fastokens", "equal on everything tried", check)
    if requested == "fastokens":
        raise TokenizerError(
            "the backend fastokens cannot be used with this tokenizer",
            where=path,
            got=check.reason,
            hint='set tokenizer.backend to "auto" or "tokenizers"',
        )
    return "tokenizers", _record(requested, "tokenizers", check.reason, check)


def check_backend(path: str | Path, texts: list[str], *, budget_s: float = 10.0) -> BackendCheck:
    """Compare `fastokens` with `tokenizers` on adversarial strings and, while `budget_s` lasts, on `texts`.

    Of a long text only the beginning is tried.
    """
    started = time.monotonic()
    files = read_files(Path(path))
    definition = parse_definition(files.tokenizer_json, files.special_tokens.values())
    tokenizer_json = orjson.dumps(definition).decode()
    truth = open_backend("tokenizers", tokenizer_json)
    try:
        tried = open_backend("fastokens", tokenizer_json)
    except TokenizerError as error:
        return BackendCheck(False, str(error.got), 0, 0, time.monotonic() - started)
    hostile = list(_chunks(adversarial_texts(Vocabulary.from_definition(definition, files.special_tokens))))
    num_texts = num_bytes = 0
    for number, chunk in enumerate(chain(hostile, _chunks(texts))):
        if number >= len(hostile) and time.monotonic() - started > budget_s:
            break
        num_texts += len(chunk)
        num_bytes += sum(map(count_bytes, chunk))
        if reason := _difference(truth, tried, chunk):
            return BackendCheck(False, reason, num_texts, num_bytes, time.monotonic() - started)
    return BackendCheck(True, "", num_texts, num_bytes, time.monotonic() - started)


def _chunks(texts: list[str]) -> Iterator[list[str]]:
    """Texts in small groups, so that the time can be looked at between them."""
    chunk: list[str] = []
    num_letters = 0
    for text in texts:
        chunk.append(text[:_MAX_LETTERS])
        num_letters += len(chunk[-1])
        if len(chunk) == _TEXTS_PER_CALL or num_letters >= _MAX_LETTERS:
            yield chunk
            chunk, num_letters = [], 0
    if chunk:
        yield chunk


def _difference(truth: Backend, tried: Backend, texts: list[str]) -> str:
    for special_tokens in ("parse", "text"):
        wanted = truth.encode_batch(texts, special_tokens)
        try:
            got = tried.encode_batch(texts, special_tokens)
        except Exception as error:  # the library's own, whatever it is
            return f"fastokens fails: {error}"
        if not _equal(wanted, got):
            text = next(t for i, t in enumerate(texts) if not np.array_equal(wanted[i], got[i]))
            return f"fastokens differs from tokenizers on {text[:80]!r} (special tokens: {special_tokens})"
    return ""


def _equal(a: Ragged, b: Ragged) -> bool:
    return np.array_equal(a.offsets, b.offsets) and np.array_equal(a.flat, b.flat)


def _record(requested: str, backend: str, reason: str, check: BackendCheck | None) -> dict:
    versions = {name: version(name) for name in ("tokenizers", "fastokens")}
    record = {"requested": requested, "backend": backend, "reason": reason, "versions": versions}
    return record if check is None else {**record, "check": asdict(check)}
