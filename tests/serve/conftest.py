"""Models and servers that several files share; each is made once."""

import pytest
import torch

from astrai_data.tokenizer import Tokenizer
from tests.data.toys import write_bpe_tokenizer
from tests.serve.serving import near_ties, trained


@pytest.fixture(scope="package", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return Tokenizer.from_pretrained(write_bpe_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="package")
def models(tokenizer) -> dict:
    return {"near ties": near_ties(), "trained": trained(tokenizer)}
