"""Ids back to text, by gathering bytes.

A byte-level token is a string over an alphabet of 256 letters, one for each byte. The table of all tokens' bytes is
made once; after that decoding is one gather over the ids of all rows and one UTF-8 decode a row, and the bytes are
exactly those that were tokenized. Bytes that are no UTF-8 (a sequence cut inside a character) show as U+FFFD.
"""

from itertools import pairwise

import numpy as np

from astrai_data.errors import TokenizerError
from astrai_data.ragged import Ragged, offsets_of
from astrai_data.tokenizer.vocabulary import Vocabulary


def build_token_bytes(vocabulary: Vocabulary) -> Ragged:
    """uint8 [total], one row an id: the bytes the token stands for; empty for ids that no token has.

    Added tokens stand for their own UTF-8, and so does a token with a letter outside the byte alphabet.
    """
    tokens = [token or "" for token in vocabulary.tokens]
    letters = np.frombuffer("".join(tokens).encode("utf-32-le"), np.uint32)
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    known = byte_of_letter()
    values = known[np.minimum(letters, len(known) - 1)]
    rows = Ragged.from_lengths(values, lengths)
    foreign = np.repeat(np.arange(len(tokens)), lengths)[values < 0]
    literal = {int(row): tokens[row] for row in foreign} | {token.id: token.content for token in vocabulary.added}
    return _with_literals(Ragged(values.astype(np.uint8), rows.offsets), literal)


def byte_of_letter() -> np.ndarray:
    """int16 [325]: code point of a letter of the byte alphabet -> its byte, -1 for other code points.

    Printable Latin-1 letters stand for themselves; the other 68 bytes, in order, have the letters from U+0100 on.
    So a space (0x20, the 33rd of them) is U+0120.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    table = np.full(0x100 + len(others) + 1, -1, np.int16)
    table[printable] = printable
    table[0x100 : 0x100 + len(others)] = others
    return table


def gather_bytes(token_bytes: Ragged, ids: Ragged) -> Ragged:
    """uint8 [total]: the bytes of every row of `ids`."""
    check_ids(ids.flat, len(token_bytes))
    pieces = token_bytes.take(ids.flat.astype(np.int64))
    return Ragged(pieces.values, pieces.offsets[ids.offsets - ids.offsets[0]])


def decode_rows(token_bytes: Ragged, ids: Ragged) -> list[str]:
    """One string a row of `ids`."""
    rows = gather_bytes(token_bytes, ids)
    data = rows.values.tobytes()
    bounds = rows.offsets.tolist()
    return [data[a:b].decode("utf-8", "replace") for a, b in pairwise(bounds)]


def drop_special(ids: Ragged, is_special: np.ndarray) -> Ragged:
    """`ids` without those flagged in `is_special` (bool, by id)."""
    check_ids(ids.flat, len(is_special))
    keep = ~is_special[ids.flat]
    kept = offsets_of(keep)
    return Ragged(ids.flat[keep], kept[ids.offsets - ids.offsets[0]])


def check_ids(ids: np.ndarray, num_ids: int) -> None:
    """Raise `TokenizerError` unless every id is in 0 .. num_ids - 1."""
    if len(ids) and not 0 <= ids.min() <= ids.max() < num_ids:
        bad = ids[(ids < 0) | (ids >= num_ids)][0]
        where, hint = "the ids to decode", "these ids are another tokenizer's: decode them with that one"
        what, wanted = "an id is outside the vocabulary", f"0 to {num_ids - 1}"
        raise TokenizerError(what, where=where, got=int(bad), wanted=wanted, hint=hint)


def _with_literals(rows: Ragged, literal: dict[int, str]) -> Ragged:
    """`rows` (uint8) with the rows named in `literal` replaced by the UTF-8 of their strings."""
    if not literal:
        return rows
    texts = [text.encode() for text in literal.values()]
    extra = Ragged.from_rows([np.frombuffer(text, np.uint8) for text in texts], np.uint8)
    order = np.arange(len(rows))
    order[list(literal)] = len(rows) + np.arange(len(literal))
    return Ragged.concat([rows, extra], np.uint8).take(order)
