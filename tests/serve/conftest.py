"""Models and servers that several files share; each is made once."""

import pytest
import torch

from astrai_data.tokenizer import Tokenizer
from tests.data.toys import write_bpe_tokenizer
from tests.serve.serving import near_ties, served, trained, write_model


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


@pytest.fixture(scope="package")
def near(models, tmp_path_factory):
    directory = write_model(tmp_path_factory.mktemp("models") / "toy", models["near ties"])
    with served(directory, "--port", 0, "--name", "mine/toy") as running:
        running.directory = directory
        yield running


@pytest.fixture(scope="package")
def learnt(models, tmp_path_factory):
    with served(write_model(tmp_path_factory.mktemp("models") / "toy", models["trained"]), "--port", 0) as running:
        yield running


@pytest.fixture
def one(near):
    """The server, idle and with every page free before and after."""
    near.wait_until_idle()
    yield near
    near.wait_until_idle()
