"""`astrai kernels build` and `astrai kernels info`."""

import json as json_format
import sys
import time
from typing import Annotated

import typer


def build(
    force: Annotated[bool, typer.Option("--force", help="Build again, also what is built.")] = False,
) -> None:
    """Compile the kernels for this machine, ahead of time."""
    from astrai_kernels import native
    from astrai_kernels.build import build as build_library
    from astrai_kernels.errors import BuildError
    from astrai_kernels.recipe import make_recipe

    begin = time.perf_counter()
    try:
        library = build_library(make_recipe(), force=force)
    except BuildError as error:
        print(f"error: the kernels cannot be built; everything runs on the torch path\n  {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    found = native.load(library)
    print(f"{library}\n{found.reason}, in {time.perf_counter() - begin:.1f} s")
    if not found.loaded:
        raise typer.Exit(1)


def info(json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Say which path the kernels take on this machine, and why."""
    from astrai_kernels.report import report

    facts = report()
    if json:
        print(json_format.dumps(facts))
        return
    for name, value in facts.items():
        print(f"{name:<11} {' '.join(value) if isinstance(value, list) else value}")
