"""Any valid configuration over any records gives exactly the store of a slow model, whatever reads and tokenizes it.

`make test-slow` tries thousands of cases, the suite a few dozen.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import tokenizers as tk
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tokenizers import processors

from astrai_data import Pipeline, PipelineConfig, TokenStore
from astrai_data.errors import RunError
from astrai_data.records import RangeReader
from astrai_data.run import reading

from .configurations import Case, cases
from .running import digests
from .store_facts import check_store
from .store_model import StoreModel
from .toys import CHATML_GENERATION_TEMPLATE, write_bpe_tokenizer, write_toy_tokenizer

ANY = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def toys(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("toys")
    around = write_toy_tokenizer(root / "around", "C+")
    library = tk.Tokenizer.from_file(str(around / "tokenizer.json"))
    library.post_processor = processors.TemplateProcessing("[B] $A [E]", special_tokens=[("[B]", 1), ("[E]", 2)])
    library.save(str(around / "tokenizer.json"))
    return {
        "bpe": write_bpe_tokenizer(root / "bpe"),
        "bpe with marks": write_bpe_tokenizer(root / "marks", template=CHATML_GENERATION_TEMPLATE),
        "toy": write_toy_tokenizer(root / "C", "C"),
        "toy without BOS": write_toy_tokenizer(root / "C0", "C0"),
        "toy with prefix and suffix": around,
    }


def run(config: PipelineConfig, root: Path, tokenizer: Path) -> str | None:
    """What the run failed with, if it did."""
    try:
        Pipeline(config, [], root, tokenizer).run()
    except RunError as error:
        return error.what
    return None


def check_against_model(case: Case, toys: dict[str, Path]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        config = case.written(root)
        model = StoreModel(case, config, toys[case.tokenizer])
        failure = run(config, root / "store", toys[case.tokenizer])
        assert (failure or "").startswith(model.failure or ""), model.failure
        assert (failure is None) == (model.failure is None)
        if failure is None:
            check_store(TokenStore.open(root / "store", None), model)


@settings(ANY, max_examples=45)
@given(case=cases())
def test_the_store_is_the_models(toys, case):
    check_against_model(case, toys)


@pytest.mark.slow
@settings(ANY, max_examples=2000)
@given(case=cases())
def test_thousands_of_stores_are_the_models(toys, case):
    check_against_model(case, toys)


def check_other_ways(case: Case, toys: dict[str, Path], block_bytes: int) -> None:
    """The same bytes whatever the blocks that are read, the batches that are built, and the backend."""
    tokenizer = toys[case.tokenizer]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        config = case.written(root, preprocessing__max_items=None)
        if run(config, root / "store", tokenizer) is not None:
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "LEAST_BATCH_BYTES", 1)
            patch.setattr(reading, "RangeReader", functools.partial(RangeReader, block_bytes=block_bytes))
            assert run(config, root / "small batches", tokenizer) is None
        other = case.written(
            root, preprocessing__max_items=None, preprocessing__batch_size=7, tokenizer={"backend": "auto"}
        )
        assert run(other, root / "other backend", tokenizer) is None
        assert digests(root / "store") == digests(root / "small batches") == digests(root / "other backend")


@settings(ANY, max_examples=10)
@given(case=cases(), block_bytes=st.integers(1, 3000))
def test_bytes_depend_on_no_batch_and_no_backend(toys, case, block_bytes):
    check_other_ways(case, toys, block_bytes)


@pytest.mark.slow
@settings(ANY, max_examples=200)
@given(case=cases(), block_bytes=st.integers(1, 3000))
def test_bytes_of_hundreds_depend_on_no_batch_and_no_backend(toys, case, block_bytes):
    check_other_ways(case, toys, block_bytes)


ELSEWHERE = """
import json, sys
from pathlib import Path
from astrai_data import Pipeline, PipelineConfig

for folder, tokenizer, config in json.loads(Path(sys.argv[1]).read_text()):
    Pipeline(PipelineConfig.from_dict(config), [], Path(folder, sys.argv[2]), tokenizer).run(int(sys.argv[2]))
"""


def check_workers(several: list[Case], toys: dict[str, Path]) -> None:
    """The same bytes from three workers, with one or three tokenizer threads each, as from this process."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for number, case in enumerate(several):
            root, tokenizer = Path(folder, str(number)), toys[case.tokenizer]
            root.mkdir()
            config = case.written(root)
            if run(config, root / "store", tokenizer) is None:
                jobs.append((str(root), str(tokenizer), config.to_dict()))
        Path(folder, "jobs.json").write_text(json.dumps(jobs))
        for workers, threads in ((1, 3), (3, 1)):
            names = dict.fromkeys(["RAYON_NUM_THREADS", "FASTOKENS_BPE_THREADS"], str(threads))
            command = [sys.executable, "-c", ELSEWHERE, str(Path(folder, "jobs.json")), str(workers)]
            subprocess.run(command, env=os.environ | names, check=True, timeout=300)
        for root, _, _ in jobs:
            assert digests(Path(root, "store")) == digests(Path(root, "1")) == digests(Path(root, "3"))


@settings(ANY, max_examples=2, phases=[Phase.generate])  # a failure is not made smaller: each try starts processes
@given(several=st.lists(cases(), min_size=4, max_size=4))
def test_bytes_depend_on_no_workers_and_no_threads(toys, several):
    check_workers(several, toys)


@pytest.mark.slow
@settings(ANY, max_examples=6, phases=[Phase.generate])
@given(several=st.lists(cases(), min_size=12, max_size=12))
def test_bytes_of_a_hundred_depend_on_no_workers_and_no_threads(toys, several):
    check_workers(several, toys)
