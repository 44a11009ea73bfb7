"""A wrong path, or a value that cannot be, is told before torch is imported, which takes seconds."""

import json
import subprocess
import sys

import pytest

from tests.train.small_runs import run, write_model_config

SCRIPT = """
import sys
import astrai
try:
    astrai.main()
finally:
    print("torch" in sys.modules)
"""


def told(folder, *arguments: object) -> str:
    """What the command said, with exit code 1 or 2 and without torch."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode in (1, 2), done.stderr
    assert done.stdout == "False\n", done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def desk(tmp_path_factory, text_store):
    """A run, and folders and files that are none of what they are taken for."""
    root = tmp_path_factory.mktemp("desk")
    run(root, text_store, max_steps=1)
    (root / "empty").mkdir()
    (root / "half" / ".work").mkdir(parents=True)
    (root / "half" / ".work" / "plan.json").write_text("{}")
    write_model_config(root / "narrow.json", vocab_size=8)
    (root / "wrong.json").write_text(json.dumps({"lrr": 1}))
    (root / "model only").mkdir()
    write_model_config(root / "model only" / "config.json")
    return root


TRAIN = {"--data": "{store}", "--model": "nano", "-o": "{desk}/new"}
WRONG = {
    "no store": ({"--data": "nowhere"}, [], "there is no token store here"),
    "an empty folder for a store": ({"--data": "{desk}/empty"}, [], "no token store"),
    "a store that is not finished": ({"--data": "{desk}/half"}, [], "not finished"),
    "no model": ({"--model": "nowhere"}, [], "no model here"),
    "a model without weights": ({"--model": "{desk}/model only"}, [], "no weights in the model directory"),
    "a model that does not fit": ({"--model": "{desk}/narrow.json"}, [], "too small a vocabulary"),
    "a used folder": ({"-o": "{desk}/run"}, [], "holds a run already"),
    "other things": ({"-o": "{desk}"}, [], "other things than a run"),
    "a file": ({"-o": "{desk}/wrong.json"}, [], "the output folder cannot be used"),
    "another store than the run's": ({"--data": "{desk}/empty", "-o": "{desk}/run"}, ["--resume"], "no token store"),
    "no configuration": ({}, ["-c", "nowhere.json"], "cannot read the configuration"),
    "a wrong configuration": ({}, ["-c", "{desk}/wrong.json"], "lrr"),
    "a wrong value": ({"--lr": "-1"}, [], "lr"),
}


@pytest.mark.parametrize("case", WRONG)
def test_train(desk, text_store, case):
    options, flags, words = WRONG[case]
    given = [*(word for pair in (TRAIN | options).items() for word in pair), *flags]
    arguments = [word.format(desk=desk, store=text_store) for word in given]
    assert words in told(desk, "train", *arguments)
    assert words in told(desk, "train", *arguments, "--dry-run")


ANSWERING = {
    "no model": (["{desk}/nowhere"], "no model here"),
    "an empty folder": (["{desk}/empty"], "no model here"),
    "no weights": (["{desk}/model only"], "no weights in the model directory"),
    "a dtype": (["{desk}/run", "--dtype", "fp8"], "unknown dtype"),
}


@pytest.mark.parametrize("command", [["generate", "-p", "-"], ["serve"]], ids=lambda words: words[0])
@pytest.mark.parametrize("case", ANSWERING)
def test_generate_and_serve(desk, command, case):
    arguments, words = ANSWERING[case]
    assert words in told(desk, *command, *(word.format(desk=desk) for word in arguments))


def test_a_setting_of_an_answer(desk):
    assert "seed is out of range" in told(desk, "generate", desk / "run", "-p", "a", "--seed", 10**30)
