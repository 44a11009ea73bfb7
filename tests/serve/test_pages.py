"""Pages: taken whole or not at all, given back once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from astrai_serve.cache import KeyValueStorage, PagePool, bytes_per_token
from astrai_serve.cache.paged_attention import slots_of
from astrai_serve.errors import ServeError
from astrai_train.models import ModelConfig


def test_low_pages_first_and_all_or_none():
    pool = PagePool(3, 16)
    assert pool.allocate(2) == [0, 1]
    assert not pool.can_allocate(2)
    with pytest.raises(ServeError):
        pool.allocate(2)
    assert pool.num_free == 1
    pool.free([0])
    assert pool.allocate(1) == [0]


@pytest.mark.parametrize("page", [0, 2, 3, -1])
def test_a_page_nobody_owns_cannot_be_freed(page):
    pool = PagePool(3, 16)
    pool.free(pool.allocate(1))
    pool.allocate(2)
    pool.free([0] if page == 0 else [])
    with pytest.raises(ServeError, match="nobody owns"):
        pool.free([page])


@pytest.mark.parametrize(("num_tokens", "pages"), [(0, 0), (1, 1), (16, 1), (17, 2)])
def test_pages_for(num_tokens, pages):
    assert PagePool(3, 16).pages_for(num_tokens) == pages


@pytest.mark.parametrize("sizes", [(0, 16), (3, 0)])
def test_no_empty_pool(sizes):
    with pytest.raises(ServeError):
        PagePool(*sizes)


@given(st.lists(st.integers(-8, 8), max_size=60))
def test_owned_and_free_are_all(moves):
    pool, owned = PagePool(12, 4), []
    for move in moves:
        if move > 0 and pool.can_allocate(move):
            owned.append(pool.allocate(move))
        elif move < 0 and owned:
            pool.free(owned.pop(move % len(owned)))
        pages = [page for some in owned for page in some]
        assert len(set(pages)) == len(pages)
        assert pool.num_free + len(pages) == 12


def test_slots():
    assert slots_of([2, 0], 4, 6).tolist() == [8, 9, 10, 11, 0, 1]


def test_bytes_per_token():
    config = ModelConfig(
        vocab_size=8,
        hidden_size=1536,
        num_hidden_layers=24,
        num_attention_heads=24,
        num_key_value_heads=4,
        intermediate_size=8,
        max_position_embeddings=8,
    )
    assert bytes_per_token(config, torch.bfloat16) == 24576
    storage = KeyValueStorage(config, 32, device="meta", dtype=torch.bfloat16)
    assert storage.keys.nbytes + storage.values.nbytes == 34 * 24576
