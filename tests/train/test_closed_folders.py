"""Folders and files that the user may not read: words and an exit code, whichever option names them."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.train.small_runs import TRAIN, run, settings

BOUND = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
"""Root, but bound by the modes of files as everybody is."""

pytestmark = pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root reads everything, and there is no setpriv"
)


def bound(*command: object) -> tuple[int, str]:
    """A command by a user who is bound: its exit code and what it said."""
    words = [*(BOUND if os.geteuid() == 0 else []), *map(str, command)]
    environment = os.environ | {"NO_COLOR": "1", "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment, check=False)
    return done.returncode, done.stderr


def train(folder, store, *flags, **changes) -> tuple[int, str]:
    given = settings(folder, store, max_steps=1, **changes)
    return bound(*TRAIN, *(w for key, value in given.items() for w in (f"--{key.replace('_', '-')}", value)), *flags)


@pytest.fixture
def trained(tmp_path, text_store):
    run(tmp_path, text_store, max_steps=1)
    yield tmp_path / "run"
    for folder, _, _ in os.walk(tmp_path):  # what was closed is to be cleared away
        os.chmod(folder, 0o755)


MODES = [0o000, 0o444, 0o111]
CLOSED = ["training", "training/state.json", "training/complete.json", "model.safetensors"]


@pytest.mark.parametrize("mode", MODES)
def test_a_folder_to_write_into(trained, text_store, mode):
    trained.chmod(mode)
    for flags, below in (([], ""), (["--resume"], ""), ([], "deeper")):
        code, said = train(trained.parent, text_store, *flags, output_dir=trained / below)
        assert (code, "Traceback" in said) == (1, False), said
        assert "error: the output folder cannot be used" in said
        assert "got: Permission denied" in said


@pytest.mark.parametrize("mode", MODES)
def test_a_folder_with_a_model(trained, text_store, mode):
    trained.chmod(mode)
    code, said = train(trained.parent, text_store, model=trained, output_dir=trained.parent / "new")
    assert (code, "Traceback" in said) == (1, False), said
    assert "got: a directory that cannot be read: Permission denied" in said


@pytest.mark.parametrize("name", CLOSED)
def test_a_file_of_a_checkpoint(trained, text_store, name):
    (trained / "epoch_0_step_1" / name).chmod(0)
    code, said = train(trained.parent, text_store, "--resume")
    assert (code, "Traceback" in said) == (1, False), said
    assert "error: a file of the checkpoint cannot be read" in said
    assert f"epoch_0_step_1/{name}" in said
    assert "got: Permission denied" in said


def test_weights_without_a_marker(trained, text_store):
    model = trained / "epoch_0_step_1"
    shutil.rmtree(model / "training")
    (model / "model.safetensors").chmod(0)
    code, said = bound(sys.executable, "-m", "astrai", "generate", model, "-p", "a")
    assert (code, "Traceback" in said) == (1, False), said
    assert "got: a file you may not read" in said


def test_a_store(trained, text_store):
    store = shutil.copytree(text_store, trained.parent / "closed")
    store.chmod(0)
    code, said = train(trained.parent, store, output_dir=trained.parent / "new")
    assert (code, "Traceback" in said) == (1, False), said
    assert "error: the manifest cannot be read" in said
