"""What is compiled with what: sources, compiler, flags, and the key that names the result.

The key is a hash of everything that can change the library, so a new torch, compiler or source gets its own file and
an old one is never loaded by mistake. Vector flags are those of the capability torch itself runs with, spelled out
and not `-march=native`: machines that share a home folder share the cache.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch.utils import cpp_extension

from astrai_kernels.errors import BuildError

CSRC = Path(__file__).parent / "csrc"
COMPILERS = ("c++", "g++", "clang++")
VECTOR_FLAGS = {
    "AVX512": ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma", "-mf16c"),
    "AVX2": ("-mavx2", "-mfma", "-mf16c"),
}
# No errno and no traps, as torch is built, but NaN and infinity keep their meaning: no -ffast-math.
BASE_FLAGS = ("-std=c++20", "-O3", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-w")


@dataclass(frozen=True)
class Recipe:
    """One build: `sources` through `compiler` with `compile_flags`, then linked with `link_flags`."""

    compiler: tuple[str, ...]
    compiler_version: str
    ninja: str
    sources: tuple[Path, ...]
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    key: str


@cache
def make_recipe() -> Recipe:
    """The recipe of this machine, torch and environment (CXX names another compiler).

    Raises:
        BuildError: no compiler, no ninja, or a platform without either.
    """
    if sys.platform == "win32":
        raise BuildError("the compiled kernels are built on Linux and macOS only")
    compiler, ninja = _find_compiler(), _find_ninja()
    version = _first_line([*compiler, "--version"])
    sources = tuple(sorted(CSRC.rglob("*.cpp")))
    compiling, linking = _compile_flags(), _link_flags()
    facts = [torch.__version__, platform.machine(), sys.platform, version, *compiler, *compiling, *linking]
    return Recipe(compiler, version, ninja, sources, compiling, linking, _key(facts))


def _find_compiler() -> tuple[str, ...]:
    asked = shlex.split(os.environ.get("CXX", ""))
    found = next(filter(None, map(shutil.which, asked[:1] or COMPILERS)), None)
    if found is None:
        raise BuildError(f"no C++ compiler: looked for {', '.join(asked[:1] or COMPILERS)}")
    return found, *asked[1:]


def _find_ninja() -> str:
    beside = str(Path(sys.executable).parent)
    found = shutil.which("ninja", path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise BuildError("no ninja: install the extra `astrai[kernels]`")
    return found


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"the compiler does not run: {error}") from error
    return (done.stdout.splitlines() or ["unknown"])[0]


def _compile_flags() -> tuple[str, ...]:
    capability = torch.backends.cpu.get_cpu_capability()
    if capability not in VECTOR_FLAGS:
        capability = "DEFAULT"  # ATen's own NEON on ARM, plain loops elsewhere
    chosen = (f"-DCPU_CAPABILITY={capability}", f"-DCPU_CAPABILITY_{capability}", *VECTOR_FLAGS.get(capability, ()))
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    includes = (f"-I{path}" for path in cpp_extension.include_paths())
    return (*BASE_FLAGS, *chosen, *_openmp(), abi, *includes)


def _openmp() -> tuple[str, ...]:
    """Apple's compiler has no OpenMP of its own; without the flag ATen's loops run on one thread."""
    return () if sys.platform == "darwin" else ("-fopenmp",)


def _link_flags() -> tuple[str, ...]:
    folders = [Path(path) for path in cpp_extension.library_paths()]
    # torch's own OpenMP runtime, so that both share one pool of threads; its file name may carry a hash.
    runtimes = [str(file) for folder in folders for file in folder.glob("libgomp*.so*")]
    libraries = [f"-L{folder}" for folder in folders] + ["-ltorch_cpu", "-lc10"]
    return ("-shared", *libraries, *(runtimes[:1] or _openmp()))


def _key(facts: list[str]) -> str:
    digest = hashlib.sha256("\0".join(facts).encode())
    for file in sorted(file for file in CSRC.rglob("*") if file.suffix in (".cpp", ".h")):
        digest.update(f"\0{file.relative_to(CSRC)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]
