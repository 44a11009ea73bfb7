"""The `astrai` command as a user meets it: start-up, help, wrong usage, exit codes, bad input."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from astrai_data.tokenizer import find_directory
from tests.data.running import TEXT_CONFIG, astrai, command, store_id, write_config, write_jsonl
from tests.data.toys import write_bpe_tokenizer, write_toy_tokenizer
from tests.e2e.commands import preprocess

COMMANDS = ["preprocess", "inspect", "mask", "export", "schema", "tokenizer"]


def test_help_is_quick():
    times_s = []
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run(command("--help"), capture_output=True, text=True, check=True)
        times_s.append(time.perf_counter() - started)
    assert all(name in done.stdout for name in COMMANDS)
    assert min(times_s) < 0.5


def loaded_modules(*arguments) -> set[str]:
    script = (
        "import sys, astrai\n"
        f"sys.argv = ['astrai', *{[str(a) for a in arguments]!r}]\n"
        "try:\n    astrai.main()\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write('MODULES ' + ' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.rpartition("MODULES ")[2].split())


def test_help_imports_no_package():
    loaded = loaded_modules("--help")
    assert not {"pyarrow", "duckdb", "tokenizers", "torch"} & loaded
    assert {name for name in loaded if name.startswith("astrai_")} <= {"astrai_data", "astrai_data.interrupts"}


@pytest.mark.parametrize("options", [[], ["--verify"], ["--show", "2"], ["--sql", "select decode(sequence) from rows"]])
def test_inspect_never_imports_torch(desk, options):
    loaded = loaded_modules("inspect", desk / "store", *options)
    assert "pyarrow" in loaded
    assert "torch" not in loaded


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name):
    done = astrai(name, "--help", check=True)
    assert "Usage" in done.stdout


def test_version():
    assert astrai("--version", check=True).stdout.startswith("astrai ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["preproces"], "preprocess"),
        (["preprocess", "x", "--ouput-dir", "y"], "--output-dir"),
        (["preprocess", "x"], "--output-dir"),
        (["preprocess", "x", "-o", "s", "-c", "demo", "--workers", "0"], "workers"),
        (["preprocess", "x", "-o", "s", "-c", "demo", "--executor", "ray"], "local"),
        (["inspect"], "STORE"),
    ],
)
def test_wrong_usage_is_exit_2(arguments, says):
    done = astrai(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_underscores_and_old_names_are_accepted(desk, tmp_path):
    arguments = ["preprocess", desk / "in.jsonl", "--output_dir", tmp_path / "s", "--config", desk / "pipeline.json"]
    astrai(*arguments, "--tokenizer_path", desk / "tok", "--batch_size", 8, check=True)


def test_dry_run_lists_tasks_and_writes_nothing(desk, tmp_path):
    done = astrai(*preprocess(desk, tmp_path / "s"), "--dry-run", check=True)
    [line] = done.stdout.splitlines()
    assert len(line.split()[0]) == 32
    assert "in.jsonl" in line
    assert not (tmp_path / "s").exists()


def test_the_folder_of_a_training_run_is_a_tokenizer(desk, tmp_path):
    """Its newest checkpoint is taken, as where a model is asked for."""
    from astrai_train.checkpoint import find_model_directory

    run = tmp_path / "run"
    write_bpe_tokenizer(run / "epoch_0_step_9", vocab_size=300)
    for name in ("epoch_1_step_10", "epoch_01_step_20", "epoch_2_step_5 (copy)"):
        write_bpe_tokenizer(run / name)
    for folder in run.iterdir():
        (folder / "config.json").touch()
    newest = find_model_directory(run)
    assert find_directory(run) == find_directory(newest) == newest
    shown = [astrai("tokenizer", "show", folder, "hello", check=True).stdout for folder in (run, newest)]
    assert shown[0] == shown[1]
    for name, folder in (("a", run), ("b", newest)):
        astrai(*preprocess(desk, tmp_path / name, **{"--tokenizer": folder}), check=True)
    assert store_id(tmp_path / "a") == store_id(tmp_path / "b")


def test_limit(desk, tmp_path):
    astrai(*preprocess(desk, tmp_path / "s"), "--limit", 3, check=True)
    assert json.loads(astrai("inspect", tmp_path / "s", "--json", check=True).stdout)["num_documents"] == 3


def bad_inputs(root) -> dict[str, tuple[list, list[str]]]:
    """Name -> (arguments after preparing what they need, words that the message must hold)."""
    write_config(root / "wrong-key.json", TEXT_CONFIG | {"preprocesing": {}})
    (root / "broken.json").write_text('{"version": 2,\n "input": }')
    (root / "empty.jsonl").touch()
    (root / "empty-dir").mkdir(exist_ok=True)
    (root / "bad.jsonl").write_bytes(b'{"text": "x\n[1]\n{"text": null}\n{"text": "\xff"}\n')
    (root / "other").mkdir(exist_ok=True)
    (root / "other" / "notes.txt").write_text("mine")
    out = root / "never"
    return {
        "wrong key": (preprocess(root, out, **{"-c": root / "wrong-key.json"}), ["preprocesing", "preprocessing"]),
        "broken config": (preprocess(root, out, **{"-c": root / "broken.json"}), ["broken.json", "line 2"]),
        "unknown pipeline": (preprocess(root, out, **{"-c": "pretran"}), ["pretran", "pretrain"]),
        "missing tokenizer": (preprocess(root, out, **{"--tokenizer": root / "tk"}), ["tokenizer.json", "astrai"]),
        "missing input": (preprocess(root, out, input=root / "inn.jsonl"), ["inn.jsonl", "in.jsonl"]),
        "empty input": (preprocess(root, root / "e1", input=root / "empty.jsonl"), ["empty"]),
        "empty folder": (preprocess(root, out, input=root / "empty-dir"), ["empty-dir"]),
        "nothing but bad lines": (preprocess(root, root / "e2", input=root / "bad.jsonl"), ["invalid", "bad.jsonl"]),
        "foreign output": (preprocess(root, root / "other"), ["notes.txt"]),
        "no store": (["inspect", root / "nowhere"], ["nowhere"]),
    }


BAD_INPUTS = [
    "wrong key",
    "broken config",
    "unknown pipeline",
    "missing tokenizer",
    "missing input",
    "empty input",
    "empty folder",
    "nothing but bad lines",
    "foreign output",
    "no store",
]


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_bad_input_is_exit_1_with_a_message_to_act_on(desk, name):
    arguments, words = bad_inputs(desk)[name]
    done = astrai(*arguments)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 0
    assert "error: " in done.stderr
    for word in words:
        assert word in done.stderr
    assert sum(f"  {part}: " in done.stderr for part in ("where", "got", "wanted", "try")) >= 2
    assert not (desk / "never").exists()


def test_two_runs_at_once_one_is_refused(tmp_path):
    write_toy_tokenizer(tmp_path / "tok")
    write_jsonl(tmp_path / "in.jsonl", [{"text": "some text of this record " * 20}] * 8000)
    write_config(tmp_path / "pipeline.json", TEXT_CONFIG)
    arguments = preprocess(tmp_path, tmp_path / "s")
    first = subprocess.Popen(command(*arguments), stderr=subprocess.DEVNULL)
    while not (tmp_path / "s" / ".work" / "lock.json").exists():
        time.sleep(0.01)
    second = astrai(*arguments)
    assert second.returncode == 1
    assert "another run is working" in second.stderr
    assert str(first.pid) in second.stderr
    assert first.wait(60) == 0


def test_a_missing_library_is_told_with_its_extra():
    """As on an installation without the extras."""
    script = "import sys, astrai\nsys.modules['torch'] = None\nsys.argv = ['astrai', 'kernels', 'info']\nastrai.main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "got: no module named 'torch'" in done.stderr
    assert "pip install '.[all]'" in done.stderr
    assert "Traceback" not in done.stderr


ANSWERS = {
    "help": ["--help"],
    "help of a command": ["inspect", "--help"],
    "version": ["--version"],
    "schema": ["schema"],
    "a ready-made pipeline": ["schema", "demo"],
    "summary": ["inspect", "store"],
    "JSON": ["inspect", "store", "--json"],
    "SQL": ["inspect", "store", "--sql", "SELECT * FROM rows"],
    "CSV": ["inspect", "store", "--sql", "SELECT * FROM rows", "--format", "csv"],
    "mask": ["mask", "in.jsonl", "-c", "pipeline.json", "--tokenizer", "tok"],
    "tokens": ["tokenizer", "show", "tok", "hello"],
    "tasks": [*preprocess(Path(), "new"), "--dry-run", "--quiet"],
}


def answer_to(output, desk, name) -> tuple[int, str]:
    """The exit code of a command of `ANSWERS` that prints to `output`, and what it says on standard error."""
    done = subprocess.run(
        command(*ANSWERS[name]), cwd=desk, stdout=output, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_to_a_full_disk(desk, name):
    with open("/dev/full", "w") as full:
        code, said = answer_to(full, desk, name)
    assert (code, said.splitlines()[0]) == (1, "error: the answer cannot be written")
    assert "where: standard output\n  got: No space left on device" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_nobody_reads(desk, name):
    """As `astrai ... | head -1`: 141 is what the shell says of a program that SIGPIPE ended."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        code, said = answer_to(writing, desk, name)
    finally:
        os.close(writing)
    assert code == 141
    assert "rror" not in said


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_an_output_that_is_closed(desk, closed):
    descriptor = {"stdout": 1, "stderr": 2}[closed]
    done = subprocess.run(
        command("tokenizer", "show", desk / "tok", "hello"), preexec_fn=lambda: os.close(descriptor), timeout=60
    )
    assert done.returncode == 0
