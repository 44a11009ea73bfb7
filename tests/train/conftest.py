"""Training tests compare bits: the kernels of torch alone, one thread."""

import pytest
import torch

from tests.train.small_runs import make_text_store


@pytest.fixture(autouse=True)
def plain_torch(monkeypatch):
    monkeypatch.setenv("ASTRAI_KERNELS", "torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def text_store(tmp_path_factory):
    """`seq`: a packed store of a few thousand tokens with a validation split, and its tokenizer beside it."""
    return make_text_store(tmp_path_factory.mktemp("text") / "store")
