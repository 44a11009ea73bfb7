"""Ctrl-C and SIGTERM, wherever they meet a command."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.data.running import TEXT_CONFIG, astrai, command, write_config, write_jsonl
from tests.data.toys import write_toy_tokenizer
from tests.e2e.commands import preprocess


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_is_exit_130_and_goes_on(tmp_path, sent):
    write_toy_tokenizer(tmp_path / "tok")  # tokenized by the slower backend: there is time to interrupt
    write_jsonl(tmp_path / "in.jsonl", [{"text": "some text of this record " * 20}] * 8000)
    write_config(tmp_path / "pipeline.json", TEXT_CONFIG)
    arguments = preprocess(tmp_path, tmp_path / "s")
    process = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "s" / ".work" / "plan.json").exists():
        time.sleep(0.01)
    process.send_signal(sent)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert not (tmp_path / "s" / ".work" / "lock.json").exists()
    astrai(*arguments, check=True)


LOSING = """
import signal, sys
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    raise OSError("lost")
sys.path.remove(__file__.removesuffix("/pyarrow.py"))
del sys.modules["pyarrow"]
import pyarrow
"""


@pytest.mark.parametrize("module", ["typer", "pyarrow"])
def test_interrupted_while_importing_is_exit_130(desk, tmp_path, module):
    """Compiled modules may lose the exception: this one does if it comes, and fails with another."""
    (tmp_path / f"{module}.py").write_text(LOSING if module == "pyarrow" else "import signal\nsignal.raise_signal(2)")
    done = subprocess.run(
        command("inspect", desk / "store"),
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (130, b"")


# in the middle of an exec(), and in a callback that drops what it raises
PLACES = {
    "string": "def loads(*_, **__):\n    exec('signal.raise_signal(signal.SIGTERM)')\n",
    "callback": (
        "class Loud:\n    def __del__(self):\n        signal.raise_signal(signal.SIGTERM)\n"
        "def loads(*arguments, _loads=json.loads, **options):\n    Loud()\n    return _loads(*arguments, **options)\n"
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_interrupted_where_the_exception_is_odd_or_lost(desk, tmp_path, place):
    """`json.loads` reads the pipeline; with SIGTERM in its middle."""
    (tmp_path / "sitecustomize.py").write_text(f"import json, signal\n{PLACES[place]}json.loads = loads\n")
    done = astrai(*preprocess(desk, tmp_path / "s"), env={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)
    assert not (tmp_path / "s" / "manifest.json").exists()


def test_a_library_that_looks_for_no_signal_ends_with_the_process():
    script = (
        "import signal, time\nfrom astrai_data import interrupts\n"
        "interrupts.listen()\nwith interrupts.ending_at_once():\n    signal.raise_signal({})\ntime.sleep(9)"
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        done = subprocess.run([sys.executable, "-c", script.format(int(number))], check=False)
        assert done.returncode == -number


def test_outside_of_such_a_library_it_does_not():
    script = (
        "from astrai_data import interrupts\ninterrupts.listen()\nwith interrupts.ending_at_once():\n    pass\n"
        "try:\n    import signal; signal.raise_signal(15)\nexcept KeyboardInterrupt:\n    print('heard')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "heard\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_a_command_that_has_ended_changes_nothing(tmp_path, number):
    """Python takes its handlers back while it ends; this module is thrown away after that."""
    last = f"class Last:\n    def __del__(self, kill=os.kill, pid=os.getpid()):\n        kill(pid, {number})\n"
    (tmp_path / "sitecustomize.py").write_text(f"import os, sys\n{last}sys.last = Last()\n")
    done = astrai("schema", "pretrain", env={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
