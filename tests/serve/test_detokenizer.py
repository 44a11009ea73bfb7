"""Ids to text piece by piece: never half a character, and joined exactly the text of the whole."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from astrai_data.tokenizer import Tokenizer
from astrai_serve.engine.detokenizer import ByteDetokenizer, WindowDetokenizer, new_detokenizer
from tests.data.toys import CHATML_SPECIALS, TRAINING_TEXT, write_bpe_tokenizer, write_directory, write_toy_tokenizer


@pytest.fixture(scope="module")
def bpe(tmp_path_factory) -> Tokenizer:
    return Tokenizer.from_pretrained(write_bpe_tokenizer(tmp_path_factory.mktemp("bpe")))


@pytest.fixture(scope="module")
def metaspace(tmp_path_factory) -> Tokenizer:
    """As SentencePiece makes them: spaces are letters, rare characters fall back to bytes."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    library = Library(models.BPE(byte_fallback=True, unk_token="<unk>"))
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    replace = decoders.Replace("▁", " ")
    library.decoder = decoders.Sequence([replace, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    specials = [*CHATML_SPECIALS.values(), "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=specials + byte_tokens, show_progress=False)
    library.train_from_iterator(TRAINING_TEXT[:3], trainer)
    definition = json.loads(library.to_str())
    definition["added_tokens"] = [token for token in definition["added_tokens"] if token["content"] not in byte_tokens]
    library = Library.from_str(json.dumps(definition))
    directory = tmp_path_factory.mktemp("metaspace")
    return Tokenizer.from_pretrained(write_directory(directory, library, {"special_tokens": CHATML_SPECIALS}))


def bytes_as_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    single = {
        tokenizer.token_bytes[i].tobytes(): i for i in range(len(tokenizer)) if len(tokenizer.token_bytes[i]) == 1
    }
    return [single[bytes([byte])] for byte in data]


def pieces(detokenizer, ids) -> list[str]:
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.finish()]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xf0\x9f\x98\xb8", ["", "", "", "😸", ""]),
        (b"\xf0\x9f\x98\xb8\xffa", ["", "", "", "😸", "\ufffd", "a", ""]),
        (b"\xc3\xa9", ["", "é", ""]),
        (b"a\xc3", ["a", "", "\ufffd"]),
        (b"\xc3a", ["", "\ufffda", ""]),
    ],
)
def test_bytes_are_held_until_the_character_is_whole(bpe, data, expected):
    ids = bytes_as_ids(bpe, data)
    assert pieces(new_detokenizer(bpe), ids) == expected
    assert "".join(expected) == bpe.decode(ids) == data.decode("utf-8", "replace")


@given(st.data())
@settings(max_examples=60)
def test_any_ids_join_to_their_text(bpe, data):
    ids = data.draw(st.lists(st.integers(0, len(bpe) - 1), max_size=30))
    for detokenizer in (ByteDetokenizer(bpe), WindowDetokenizer(bpe)):
        found = pieces(detokenizer, ids)
        if isinstance(detokenizer, ByteDetokenizer):
            assert "".join(found) == bpe.decode(ids)


@given(st.text(max_size=40))
@settings(max_examples=60)
def test_any_text_comes_back_from_both(bpe, text):
    ids = bpe.encode(text, add_special_tokens=False)
    for detokenizer in (ByteDetokenizer(bpe), WindowDetokenizer(bpe)):
        found = pieces(detokenizer, ids)
        assert "".join(found) == text
        assert "\ufffd" in text or not any("\ufffd" in piece for piece in found)


@pytest.mark.parametrize(
    "text", ["The quick brown fox", " leading", "two  spaces", "emoji 😸 in between", "日本語", ""]
)
def test_a_metaspace_tokenizer(metaspace, text):
    assert not metaspace.is_byte_level
    ids = metaspace.encode(text, add_special_tokens=False)
    found = pieces(new_detokenizer(metaspace), ids)
    assert "".join(found) == metaspace.decode(ids) == text
    assert not any("\ufffd" in piece for piece in found)


def test_bad_bytes_do_not_stall_a_window(metaspace):
    bad = metaspace.token_to_id("<0xFF>")
    found = pieces(new_detokenizer(metaspace), [bad] * 10)
    assert "".join(found) == "\ufffd" * 10
    assert sum(map(bool, found[:-1])) == 2


def test_special_tokens_have_no_text(bpe, metaspace, tmp_path):
    toy = Tokenizer.from_pretrained(write_toy_tokenizer(tmp_path))
    for tokenizer in (bpe, metaspace, toy):
        ids = [tokenizer.bos_token_id, *tokenizer.encode("ab", add_special_tokens=False), tokenizer.eos_token_id]
        assert "".join(pieces(new_detokenizer(tokenizer), ids)) == "ab"
