"""What every test of the command line starts from."""

import pytest

from tests.data.running import TEXT_CONFIG, astrai, write_config, write_jsonl
from tests.data.toys import write_bpe_tokenizer
from tests.e2e.commands import preprocess


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with one input, one pipeline, one tokenizer and a finished store."""
    root = tmp_path_factory.mktemp("desk")
    write_jsonl(root / "in.jsonl", [{"text": f"line {i} of the text"} for i in range(20)])
    write_config(root / "pipeline.json", TEXT_CONFIG)
    write_bpe_tokenizer(root / "tok")
    astrai(*preprocess(root, root / "store"), check=True)
    return root
