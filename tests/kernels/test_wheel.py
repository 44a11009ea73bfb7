"""The package as it is installed: the sources travel in the wheel, and the command builds from them."""

import shutil
import subprocess
import sys
import zipfile

from astrai_kernels.recipe import CSRC
from tests.kernels.conftest import ROOT


def test_a_wheel_carries_the_sources(tmp_path):
    source = tmp_path / "source"
    for folder in ("astrai_data", "astrai_train", "astrai_serve", "pipelines", "kernels"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("astrai.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    offline = ["--no-build-isolation", "--no-deps", "--no-cache-dir"]
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "wheel", *offline, "-w", tmp_path, source], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    wanted = [file.relative_to(CSRC.parent) for file in CSRC.parent.rglob("*") if file.suffix in (".py", ".cpp", ".h")]
    assert {f"astrai_kernels/{file.as_posix()}" for file in wanted} <= set(zipfile.ZipFile(wheel).namelist())
    assert any(file.suffix == ".cpp" for file in wanted)
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import astrai_kernels.recipe as recipe;"
        "print(recipe.CSRC, recipe.make_recipe().key, len(recipe.make_recipe().sources))"
    )
    command = [sys.executable, "-c", program, tmp_path / "installed"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.split()
    assert printed[0] == str(tmp_path / "installed" / "astrai_kernels" / "csrc")
    assert printed[2] == "3"
