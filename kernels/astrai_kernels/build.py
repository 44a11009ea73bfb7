"""Building the library with ninja, in the foreground or in the background: locked, resumable, placed atomically.

Two processes never build the same key at once, a reader sees the whole library or none, and a build that dies with
its process is taken up where it stopped. The compiler never outlives the process that wanted it (`supervise.py`).
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from astrai_kernels.errors import BuildError
from astrai_kernels.recipe import Recipe

VARIABLE = "ASTRAI_KERNELS_CACHE"
TIMEOUT_S = 600
POLL_S = 0.1
LOG_LINES = 12
BACKGROUND_NICENESS = 10


def cache_folder() -> Path:
    """Where libraries lie: ASTRAI_KERNELS_CACHE, else `astrai/kernels` in the user's cache folder."""
    asked = os.environ.get(VARIABLE)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(asked).expanduser() if asked else Path(base).expanduser() / "astrai" / "kernels"


def library_path(recipe: Recipe) -> Path:
    """The library of `recipe`, whether it exists or not."""
    return cache_folder() / f"astrai_native-{recipe.key}.so"


def read_failure(recipe: Recipe) -> str | None:
    """Why the last build of `recipe` failed; None: it did not."""
    try:
        return json.loads(_failure_path(recipe).read_text())["reason"]
    except (OSError, ValueError, KeyError):
        return None


def build(recipe: Recipe, *, force: bool = False, niceness: int = 0) -> Path:
    """Build `recipe`, wait for it, and return the library; one that exists is returned at once unless `force`.

    Raises:
        BuildError: the compiler's last lines, or what else stood in the way; also kept for `read_failure`.
    """
    library = library_path(recipe)
    if library.exists() and not force:
        return library
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with _lock(library.with_suffix(".lock")):
            if force or not library.exists():
                _build_locked(recipe, library, niceness)
    except OSError as error:
        raise BuildError(f"cannot build in {library.parent}: {error}") from error
    return library


def start_in_background(recipe: Recipe) -> threading.Thread:
    """Build on a thread of its own that the caller need not wait for; a failure is kept, never raised."""
    thread = threading.Thread(target=_build_quietly, args=(recipe,), name="astrai-kernels-build", daemon=True)
    thread.start()
    return thread


def _build_quietly(recipe: Recipe) -> None:
    try:
        build(recipe, niceness=BACKGROUND_NICENESS)
    except BuildError:
        return  # kept in the failure file where there is room for one; `astrai kernels info` shows it


def _failure_path(recipe: Recipe) -> Path:
    return library_path(recipe).with_suffix(".failed.json")


def _build_locked(recipe: Recipe, library: Path, niceness: int) -> None:
    work = library.with_suffix(".building")
    work.mkdir(exist_ok=True)
    (work / "build.ninja").write_text(_ninja_file(recipe))
    try:
        _run_ninja(recipe, work, niceness)
    except BuildError as error:
        _failure_path(recipe).write_text(json.dumps({"reason": str(error)}))
        raise
    with open(work / library.name, "rb") as file:
        os.fsync(file.fileno())
    os.replace(work / library.name, library)
    _failure_path(recipe).unlink(missing_ok=True)
    shutil.rmtree(work, ignore_errors=True)


def _run_ninja(recipe: Recipe, work: Path, niceness: int) -> None:
    supervisor = [sys.executable, "-I", "-S", str(Path(__file__).with_name("supervise.py"))]
    log = work / "build.log"
    with open(log, "wb") as output:
        # The pipe is the supervisor's sign of life: it ends when this process closes it or dies, however it dies.
        command = [*supervisor, str(niceness), recipe.ninja, "-C", str(work)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True)
    try:
        status = process.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        status = f"no end after {TIMEOUT_S} s"
    finally:
        process.stdin.close()
        process.wait()
    if status != 0:
        lines = log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:]
        raise BuildError("\n".join([f"ninja failed ({status})", *lines]))


def _ninja_file(recipe: Recipe) -> str:
    compiler = " ".join(map(_quoted, recipe.compiler))
    objects = {source: f"{number}.o" for number, source in enumerate(recipe.sources)}
    lines = [
        "ninja_required_version = 1.5",
        "rule compile",
        f"  command = {compiler} {' '.join(map(_quoted, recipe.compile_flags))} -MD -MF $out.d -c $in -o $out",
        "  description = compile $in",
        "  depfile = $out.d",
        "  deps = gcc",
        "rule link",
        f"  command = {compiler} $in {' '.join(map(_quoted, recipe.link_flags))} -o $out",
        "  description = link $out",
        *(f"build {name}: compile {_path(source)}" for source, name in objects.items()),
        f"build {library_path(recipe).name}: link {' '.join(objects.values())}",
        "",
    ]
    return "\n".join(lines)


def _quoted(word: str) -> str:
    """For the shell, then for ninja."""
    return shlex.quote(word).replace("$", "$$")


def _path(path: Path) -> str:
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold `path` against other processes and threads; the system lets go of it when the holder dies."""
    import fcntl  # not on Windows, where `make_recipe` has already refused

    deadline = time.monotonic() + TIMEOUT_S
    with open(path, "w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BuildError(f"another process holds {path} for over {TIMEOUT_S} s") from None
                time.sleep(POLL_S)
        yield
