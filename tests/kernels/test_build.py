"""Building: once, atomically, resumably, and never longer than the process that wanted it.

The toolchain is the real one on a source of two lines; where a build must last, the compiler is a script that sleeps.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from astrai_kernels import BuildError, build, cli, native, recipe

pytestmark = pytest.mark.usefixtures("compiled")
GOOD = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv(build.VARIABLE, str(folder))
    return folder


def small_recipe(folder, text=GOOD, compiler=None):
    source = folder / "a source.cpp"
    source.write_text(text)
    real = recipe.make_recipe()
    return replace(
        real,
        sources=(source,),
        key="small",
        compile_flags=("-fPIC",),
        link_flags=("-shared",),
        compiler=compiler or real.compiler,
    )


def sleeping_compiler(folder):
    """A compiler that notes that it runs, then sleeps; (command, its notes)."""
    script, notes = folder / "cc", folder / "notes"
    script.write_text(f"#!/bin/sh\necho $$ >> '{notes}'\nexec sleep 60\n")
    script.chmod(0o755)
    return (str(script),), notes


def wait_for(condition, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_a_build_leaves_the_library_and_nothing_else(cache, tmp_path):
    library = build.build(small_recipe(tmp_path))
    assert library == build.library_path(small_recipe(tmp_path))
    assert sorted(file.suffix for file in cache.iterdir()) == [".lock", ".so"]
    before = library.stat().st_mtime_ns
    assert build.build(small_recipe(tmp_path)) == library
    assert library.stat().st_mtime_ns == before
    build.build(small_recipe(tmp_path), force=True)
    assert library.stat().st_mtime_ns > before


def test_a_failure_is_kept_until_a_build_succeeds(cache, tmp_path):
    with pytest.raises(BuildError, match="no_such_name"):
        build.build(small_recipe(tmp_path, "int x = no_such_name;\n"))
    broken = small_recipe(tmp_path, "int x = no_such_name;\n")
    assert "no_such_name" in build.read_failure(broken)
    assert not build.library_path(broken).exists()
    assert not native.status(broken).loaded
    assert "no_such_name" in native.status(broken).reason
    build.build(small_recipe(tmp_path))
    assert build.read_failure(broken) is None


def test_a_background_build_blocks_nobody_and_raises_nothing(cache, tmp_path):
    begin = time.monotonic()
    good = build.start_in_background(small_recipe(tmp_path))
    assert time.monotonic() - begin < 0.5
    good.join(60)
    assert build.library_path(small_recipe(tmp_path)).exists()
    bad = replace(small_recipe(tmp_path, "broken"), key="bad")
    build.start_in_background(bad).join(60)
    assert build.read_failure(bad)


def test_a_cache_that_cannot_be_written_is_a_reason(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(build.VARIABLE, str(tmp_path / "file" / "below"))
    with pytest.raises(BuildError, match="cannot build in"):
        build.build(small_recipe(tmp_path))
    build.start_in_background(small_recipe(tmp_path)).join(60)


PROGRAM = """
import sys
from pathlib import Path
from astrai_kernels import build
from tests.kernels.test_build import small_recipe
folder, *compiler = sys.argv[1:]
print(build.build(small_recipe(Path(folder), compiler=tuple(compiler) or None)))
"""


def start_builder(folder, compiler=()):
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen([sys.executable, "-c", PROGRAM, folder, *compiler], cwd=root, stdout=subprocess.PIPE)


def test_processes_at_once_build_once(cache, tmp_path):
    notes = tmp_path / "notes"
    script = tmp_path / "cc"
    real = recipe.make_recipe().compiler[0]
    script.write_text(f"#!/bin/sh\necho $$ >> '{notes}'\nexec {real} \"$@\"\n")
    script.chmod(0o755)
    builders = [start_builder(tmp_path, [script]) for _ in range(3)]
    paths = {builder.communicate(timeout=120)[0] for builder in builders}
    assert [builder.returncode for builder in builders] == [0] * 3
    assert len(paths) == 1
    assert len(notes.read_text().split()) == 2  # one compiles, one links


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_compiler_outlives_its_process(cache, tmp_path, number):
    compiler, notes = sleeping_compiler(tmp_path)
    builder = start_builder(tmp_path, compiler)
    wait_for(lambda: notes.exists() and notes.read_text().strip(), 60)
    compiling = int(notes.read_text())
    family = psutil.Process(builder.pid).children(recursive=True)
    assert psutil.pid_exists(compiling)
    os.kill(builder.pid, number)
    builder.communicate(timeout=30)
    wait_for(lambda: not any(process.is_running() for process in family))
    assert not psutil.pid_exists(compiling)
    assert build.build(small_recipe(tmp_path)).exists()  # nothing it left stands in the way


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [("CXX", "no-such-compiler -O1", "no C\\+\\+ compiler: looked for no-such-compiler"), ("PATH", "", "compiler")],
)
def test_a_missing_toolchain_is_a_reason(monkeypatch, variable, value, words):
    monkeypatch.setenv(variable, value)
    with pytest.raises(BuildError, match=words):
        recipe.make_recipe.__wrapped__()


def test_the_key_follows_what_decides_the_library(monkeypatch):
    key = recipe.make_recipe.__wrapped__().key
    assert recipe.make_recipe.__wrapped__().key == key
    monkeypatch.setattr(recipe, "BASE_FLAGS", (*recipe.BASE_FLAGS, "-g"))
    assert recipe.make_recipe.__wrapped__().key != key


def run_fresh(tmp_path, program, **environment):
    """Output of `program` in a process of its own with an empty cache."""
    variables = os.environ | {build.VARIABLE: str(tmp_path / "empty")} | environment
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=100, check=True).stdout


FIRST_USE = """
import torch, astrai_kernels as kernels
q = torch.randn(4, 2, 8)
print(kernels.attention_varlen(q, q, q, torch.tensor([0, 4], dtype=torch.int32), 4).shape)
from astrai_kernels import native
print(native.decide().reason)
"""


def test_first_use_takes_what_is_there(tmp_path):
    shape, reason = run_fresh(tmp_path, FIRST_USE).splitlines()
    assert shape == "torch.Size([4, 2, 8])"
    assert reason.startswith("not built yet")
    shape, reason = run_fresh(tmp_path, FIRST_USE, CXX="no-such-compiler").splitlines()
    assert shape == "torch.Size([4, 2, 8])"
    assert reason.startswith("no C++ compiler")
    _, reason = run_fresh(tmp_path, FIRST_USE, **{build.VARIABLE: str(build.cache_folder())}).splitlines()
    assert reason.startswith("compiled for")


def test_commands(capsys):
    cli.build()
    assert "compiled for" in capsys.readouterr().out
    cli.info()
    assert "backend     cpu" in capsys.readouterr().out
    cli.info(json=True)
    assert '"backend": "cpu"' in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_narrower_vectors_pass_the_same_tests(capability):
    """The library built for another capability of torch, in a process of its own; 15 to 40 s each to build."""
    tests = ["test_attention.py", "test_attention_cases.py", "test_rotary.py"]
    folder = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", *(str(folder / name) for name in tests)]
    variables = os.environ | {"ATEN_CPU_CAPABILITY": capability}
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=folder.parents[1], timeout=500)
    assert ran.returncode == 0, ran.stdout[-3000:]


def test_a_second_library_in_one_process_is_not_registered_again(tmp_path):
    """Another copy of the library, as after a rebuild under a running process: loading it used to abort."""
    script = (
        "import shutil, sys, pathlib\n"
        "from astrai_kernels import native, build\n"
        "from astrai_kernels.recipe import make_recipe\n"
        "assert native.require().loaded\n"
        "copy = pathlib.Path(sys.argv[1]) / 'copy.so'\n"
        "shutil.copy(build.library_path(make_recipe()), copy)\n"
        "print(native.load(copy).reason)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "loaded before" in done.stdout
