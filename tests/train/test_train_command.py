"""`astrai train` as a user meets it: a run from text to a model, exit codes, what is printed, interruption."""

import json
import os
import signal
import subprocess
import time

import pytest

from astrai_train.cli import _kind
from astrai_train.config import TrainConfig
from tests.data.running import write_config
from tests.train.small_runs import TRAIN, metrics, names, settings, write_model_config

ENVIRONMENT = {"NO_COLOR": "1", "COLUMNS": "200", "ASTRAI_KERNELS": "torch", "OMP_NUM_THREADS": "1"}


def astrai_train(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*TRAIN, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | ENVIRONMENT,
        check=False,
    )


def options(folder, store, **changes) -> list[str]:
    given = settings(folder, store, **changes)
    return [word for key, value in given.items() for word in (f"--{key.replace('_', '-')}", str(value))]


def test_a_file_and_options(tmp_path, text_store):
    """The file's values, options that win, both spellings of an option; then --resume alone."""
    write_model_config(tmp_path / "model.json")
    given = {"data": str(text_store), "model": "model.json", "output_dir": "run", "batch_tokens": 128, "max_steps": 9}
    file = write_config(tmp_path / "train.json", given | {"device": "cpu"})
    done = astrai_train("-c", file, "--max_steps", 2, "--dry-run")
    assert (done.returncode, (tmp_path / "run").exists()) == (0, False)
    done = astrai_train("-c", file, "--max_steps", 2, "--lr", "2e-3")
    assert done.returncode == 0, done.stderr
    assert [line["step"] for line in metrics(tmp_path)] == [1, 2]
    assert "device    cpu (asked for), 1 thread\n" in done.stderr
    assert "dtype     float32" in done.stderr
    assert "lr        0.002" in done.stderr
    assert "step 2/2" in done.stderr
    assert "\x1b" not in done.stderr
    assert done.stdout == ""
    saved = json.loads((tmp_path / "run" / "epoch_0_step_2" / "training" / "config.json").read_text())
    assert (saved["lr"], saved["batch_tokens"], saved["data"]) == (2e-3, 128, str(text_store))
    done = astrai_train("-o", tmp_path / "run", "--resume", "--max-steps", 3)
    assert done.returncode == 0, done.stderr
    assert "goes on from epoch_0_step_2" in done.stderr
    assert "max_steps 2 -> 3" in done.stderr
    assert [line["step"] for line in metrics(tmp_path)] == [1, 2, 3]


def test_a_run_that_goes_on_with_its_batch_said_otherwise(tmp_path, text_store):
    """The checkpoint's `batch_tokens` and the option `--rows-per-batch` are not two sizes at once."""
    done = astrai_train(*options(tmp_path, text_store, max_steps=1))
    assert done.returncode == 0, done.stderr
    again = ["-o", tmp_path / "run", "--resume", "--max-steps", 2, "--rows-per-batch"]
    done = astrai_train(*again, 1)
    assert (done.returncode, "wanted: batch_tokens 128: 2 rows a batch" in done.stderr) == (1, True), done.stderr
    done = astrai_train(*again, 2)
    assert (done.returncode, "2 of them done" not in done.stderr) == (0, True), done.stderr
    assert [line["step"] for line in metrics(tmp_path)] == [1, 2]


def test_a_run_of_one_step_says_so(tmp_path, text_store):
    """Before it begins, in a dry run too, and at its end: not as if all were well."""
    given = [word for word in options(tmp_path, text_store) if word != "--batch-tokens" and word != "128"]
    dry, done = astrai_train(*given, "--dry-run"), astrai_train(*given)
    for said in (dry, done):
        assert said.returncode == 0, said.stderr
        assert "steps     1 in 1 epoch; 1 batch an epoch (batch_tokens 8,192); each row is seen once\n" in said.stderr
        assert "warning   only 1 optimizer step: little will be learnt. For 50 or so: --epochs 50 or" in said.stderr
    assert ": finished, after 1 step only: see the warning above\n" in done.stderr
    enough = astrai_train(*given, "--resume", "--epochs", 12)
    assert "warning" not in enough.stderr
    assert ": finished\n" in enough.stderr, enough.stderr


def to_process(process):
    process.send_signal(signal.SIGINT)


def to_group(process):
    """As schedulers do: the loader's workers get it too."""
    os.killpg(process.pid, signal.SIGTERM)


@pytest.mark.parametrize(("send", "workers"), [(to_process, 0), (to_group, 2)])
def test_a_signal_ends_with_a_checkpoint_and_130(tmp_path, text_store, send, workers):
    process = subprocess.Popen(
        [*TRAIN, *options(tmp_path, text_store, epochs=100000, workers=workers)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | ENVIRONMENT,
        start_new_session=True,
    )
    wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").exists() and metrics(tmp_path))
    send(process)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    last = metrics(tmp_path)[-1]
    assert names(tmp_path) == [f"epoch_{last['epoch']}_step_{last['step']}"]
    assert "--resume goes on from here" in errors
    assert "Traceback" not in errors


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


WRONG = {
    "nothing given": ([], 2, ["--data, --model, --output-dir"]),
    "an unknown option": (["--max-stepz", "3"], 2, ["--max-steps"]),
    "a wrong word": (["--lr", "fast"], 2, ["--lr", "valid number"]),
    "a wrong number": (["--epochs", "0"], 2, ["epochs", "above 0"]),
    "a wrong choice": (["--strategy", "sftt"], 2, ["sft"]),
    "no store": (["--data", "nowhere", "--model", "nano", "-o", "run"], 1, ["error: there is no token store here"]),
    "no file": (["-c", "nowhere.json"], 1, ["error: cannot read the configuration", "nowhere.json"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage(tmp_path, case):
    arguments, code, words = WRONG[case]
    done = subprocess.run(
        [*TRAIN, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=os.environ | ENVIRONMENT | {"PYTHONPATH": os.getcwd()},
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr


def test_help_needs_no_torch():
    script = TRAIN[2].replace("astrai.main()", "import sys; sys.argv = ['astrai', 'train', '--help']\n")
    script += "try:\n    astrai.main()\nexcept SystemExit:\n    print('torch' in sys.modules)"
    done = subprocess.run([TRAIN[0], "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.endswith("False\n")
    assert all(
        f"--{name.replace('_', '-')}" in done.stdout for name in TrainConfig.model_fields if name != "schema_url"
    )


@pytest.mark.parametrize(
    ("key", "kind"),
    [("lr", float), ("epochs", int), ("strategy", str), ("seed", int), ("clip", float), ("data", str)],
)
def test_an_option_parses_what_its_key_takes(key, kind):
    assert _kind(TrainConfig.model_fields[key].annotation)[0] is kind
