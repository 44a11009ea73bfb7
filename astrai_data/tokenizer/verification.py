"""Is the accelerated backend equal to the truth for this tokenizer? Tried, not trusted.

Adversarial strings always, with special tokens parsed and as text, then as much of a sample of the input as the time
allows, as it will be read. One difference anywhere means that `tokenizers` is used.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import chain

import numpy as np

from astrai_data.errors import TokenizerError
from astrai_data.ragged import Ragged
from astrai_data.tokenizer.adversarial import adversarial_texts
from astrai_data.tokenizer.alignment import count_bytes
from astrai_data.tokenizer.backends import SPECIAL_TOKENS_CHOICES, SpecialTokens, check_backend_name
from astrai_data.tokenizer.tokenizer import Tokenizer

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


def choose_backend(
    tokenizer: Tokenizer,
    requested: str,
    texts: list[str],
    *,
    special_tokens: Sequence[SpecialTokens] = SPECIAL_TOKENS_CHOICES,
    budget_s: float = 10.0,
) -> tuple[Tokenizer, dict]:
    """The tokenizer over the backend that is `requested` (a name or `auto`), and a record of how, for `run.json`.

    `texts` are tried in each of the ways of `special_tokens`, the adversarial strings in both.

    Raises:
        TokenizerError: the name is unknown, or `fastokens` was asked for by name and is not equal.
    """
    if requested == "tokenizers":
        return tokenizer.with_backend(requested), _record(requested, requested, "asked for", None)
    if requested != "auto":
        check_backend_name(requested)
    fast, check = _tried(tokenizer, texts, special_tokens, budget_s)
    if check.equal:
        return fast, _record(requested, "fastokens", "equal on everything tried", check)
    if requested == "fastokens":
        raise TokenizerError(
            "the backend fastokens cannot be used with this tokenizer",
            where="tokenizer.backend",
            got=check.reason,
            wanted="a tokenizer that both backends cut alike",
            hint='set tokenizer.backend to "auto" or "tokenizers"',
        )
    return tokenizer.with_backend("tokenizers"), _record(requested, "tokenizers", check.reason, check)


def check_backend(tokenizer: Tokenizer, texts: list[str], *, budget_s: float = 10.0) -> BackendCheck:
    """Compare `fastokens` with `tokenizers` on adversarial strings and, while `budget_s` lasts, on `texts`.

    Of a long text only the beginning is tried.
    """
    return _tried(tokenizer, texts, SPECIAL_TOKENS_CHOICES, budget_s)[1]


def _tried(
    tokenizer: Tokenizer, texts: list[str], special_tokens: Sequence[SpecialTokens], budget_s: float
) -> tuple[Tokenizer, BackendCheck]:
    """(the tokenizer over fastokens, or as it was where that refuses it; what was found)."""
    started = time.monotonic()
    truth = tokenizer.with_backend("tokenizers")
    try:
        fast = tokenizer.with_backend("fastokens")
    except TokenizerError as error:
        return tokenizer, BackendCheck(False, str(error.got), 0, 0, time.monotonic() - started)
    hostile = [(chunk, SPECIAL_TOKENS_CHOICES) for chunk in _chunks(adversarial_texts(truth.added_tokens))]
    usual = ((chunk, special_tokens) for chunk in _chunks(texts))
    num_texts = num_bytes = 0
    for number, (chunk, choices) in enumerate(chain(hostile, usual)):
        if number >= len(hostile) and time.monotonic() - started > budget_s:
            break
        num_texts += len(chunk)
        num_bytes += sum(map(count_bytes, chunk))
        if reason := _difference(truth, fast, chunk, choices):
            return fast, BackendCheck(False, reason, num_texts, num_bytes, time.monotonic() - started)
    return fast, BackendCheck(True, "", num_texts, num_bytes, time.monotonic() - started)


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


def _difference(truth: Tokenizer, tried: Tokenizer, texts: list[str], choices: Sequence[SpecialTokens]) -> str:
    for special_tokens in choices:
        wanted, _ = truth.encode_texts(texts, special_tokens=special_tokens)
        try:
            got, _ = tried.encode_texts(texts, special_tokens=special_tokens)
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
