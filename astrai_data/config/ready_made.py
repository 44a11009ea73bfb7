"""The ready-made pipelines: the JSON files of the repository's `pipelines/`, installed as package data."""

import importlib.resources
import os
from pathlib import Path

from astrai_data.config.problems import nearest
from astrai_data.errors import PipelineConfigError

PACKAGE = "astrai_data.pipelines"


def ready_made_pipelines() -> dict[str, Path]:
    """Name -> file of every ready-made pipeline, sorted by name."""
    try:
        root = importlib.resources.files(PACKAGE)
    except ModuleNotFoundError:
        return {}
    files = [Path(str(entry)) for entry in root.iterdir() if entry.name.endswith(".json")]
    return {it.stem: it for it in sorted(files, key=lambda it: it.stem) if not it.stem.endswith(".schema")}


def locate(path_or_name: str | os.PathLike[str]) -> Path:
    """The file that a path or a ready-made pipeline's name stands for.

    A string without a suffix or a folder that is a ready-made name means that pipeline, whatever lies in the
    working directory.

    Raises:
        PipelineConfigError: there is no such file or name.
    """
    pipelines = ready_made_pipelines()
    if isinstance(path_or_name, str) and path_or_name in pipelines:
        return pipelines[path_or_name]
    path = Path(path_or_name)
    if path.is_file():
        return path
    raise PipelineConfigError(
        "no such configuration file" if path.suffix == ".json" else "no such configuration",
        where=path,
        got="a folder" if path.is_dir() else "nothing",
        wanted="a JSON file or a ready-made pipeline: " + ", ".join(pipelines),
        hint=nearest(path.stem, pipelines) or "check the path, or take a ready-made one by its name",
    )
