"""The ready-made pipelines: valid, short, found by name from a checkout and from a wheel."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from astrai_data.config import PipelineConfig, ready_made_pipelines

ROOT = Path(__file__).parents[2]
NAMES = ["demo", "pretrain", "pretrain-code", "sft-chat", "sft-instruction"]


def test_the_names():
    assert list(ready_made_pipelines()) == NAMES
    assert all(path.parent == ROOT / "pipelines" for path in ready_made_pipelines().values())


@pytest.mark.parametrize("name", NAMES)
def test_each_is_runnable_names_itself_and_says_only_what_is_not_default(name):
    config = PipelineConfig.from_file(name)
    config.check_runnable()
    assert (config.name, config.version) == (name, 2)
    said = json.loads(ready_made_pipelines()[name].read_text(encoding="utf-8"))
    assert said["$schema"] == "./pipeline.schema.json"
    for part in ("data", "preprocessing", "output", "run"):
        defaults = getattr(config, part).defaults(2)
        assert all(value != defaults[key] for key, value in said.get(part, {}).items())


@pytest.mark.parametrize(
    ("name", "over_long", "has_loss_mask", "max_packed_len", "eos"),
    [
        ("demo", "split", False, 1024, [True]),
        ("pretrain", "split", False, 8192, [True]),
        ("pretrain-code", "split", False, 32768, [True]),
        ("sft-chat", "drop", True, 8192, [False]),
        ("sft-instruction", "drop", True, 8192, [False, True]),
    ],
)
def test_what_they_resolve_to(name, over_long, has_loss_mask, max_packed_len, eos):
    config = PipelineConfig.from_file(name)
    assert config.preprocessing.packing_strategy == "bfd"
    assert config.preprocessing.over_long == over_long
    assert config.preprocessing.max_packed_len == max_packed_len
    assert config.has_loss_mask == has_loss_mask
    assert [section.append_eos for section in config.input.sections] == eos


def test_every_package_is_listed_for_the_wheel():
    """A folder with code that `packages` in pyproject.toml does not list would be missing from the wheel."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    files = [file.relative_to(ROOT) for floor in ROOT.glob("astrai_*") for file in floor.rglob("*.py")]
    found = {".".join(file.parent.parts) for file in files}
    assert sorted({*listed} - {"astrai_data.pipelines", "astrai_kernels"}) == sorted(found)


def test_a_wheel_carries_them(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    for folder in ("astrai_data", "astrai_train", "astrai_serve", "pipelines", "kernels"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("astrai.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    pip = [sys.executable, "-m", "pip", "--quiet"]
    offline = ["--no-build-isolation", "--no-deps"]
    subprocess.run([*pip, "wheel", *offline, "-w", tmp_path, source], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", target, wheel], check=True)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from astrai_data.config import *;"
        "print(__import__('astrai_data.config').__file__, *ready_made_pipelines().values())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, target], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    package, *files = ran.stdout.split()
    assert package == f"{target}/astrai_data/__init__.py"
    assert files == [f"{target}/astrai_data/pipelines/{name}.json" for name in NAMES]
