"""The compiled library in this process: found, loaded once, or the reason why not."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from astrai_kernels import build
from astrai_kernels.errors import BuildError
from astrai_kernels.recipe import Recipe, make_recipe


@dataclass(frozen=True)
class Native:
    """Whether the compiled operators can be called, and why or why not."""

    loaded: bool
    reason: str


@cache
def decide() -> Native:
    """What `auto` works with in this process, decided at the first call: loads a library that is built.

    One that is not built is built in the background, unless that failed before; this process goes on without it.
    """
    try:
        recipe = make_recipe()
    except BuildError as error:
        return Native(False, str(error))
    if build.library_path(recipe).exists():
        return load(build.library_path(recipe))
    failure = build.read_failure(recipe)
    if failure is not None:
        return Native(False, f"an earlier build failed; `astrai kernels build` tries again: {failure}")
    build.start_in_background(recipe)
    return Native(False, "not built yet; a background build is under way for the next process")


def require() -> Native:
    """Build if need be, wait for it, and load."""
    try:
        return load(build.build(make_recipe()))
    except BuildError as error:
        return Native(False, str(error))


@cache
def load(library: Path) -> Native:
    """Load `library`, unless this process has loaded one: registering the operators again would abort it."""
    if hasattr(torch.ops.astrai_native, "rotary"):
        return Native(True, f"compiled for {torch.backends.cpu.get_cpu_capability()}, loaded before in this process")
    try:
        torch.ops.load_library(str(library))
    except (OSError, RuntimeError) as error:
        return Native(False, f"{library.name} does not load: {str(error).splitlines()[0]}")
    return Native(True, f"compiled for {torch.backends.cpu.get_cpu_capability()}, {library.name}")


def status(recipe: Recipe) -> Native:
    """As `decide`, but it starts no build and says what is on disk now."""
    if build.library_path(recipe).exists():
        return load(build.library_path(recipe))
    failure = build.read_failure(recipe)
    return Native(False, "not built" if failure is None else f"the last build failed: {failure}")
