"""`astrai schema`: the JSON Schema of pipeline configurations, for editors; or a ready-made pipeline, to start from."""

import json
import sys
from typing import Annotated

import typer


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A ready-made pipeline: print that instead.")
    ] = None,
) -> None:
    """Print the JSON Schema of a pipeline configuration; an editor completes and checks keys with it."""
    from astrai_data.config import PipelineConfig
    from astrai_data.config.ready_made import locate

    if name is not None:
        found = json.loads(locate(name).read_text(encoding="utf-8"))
        found.pop("$schema", None)  # a file beside the original
    else:
        found = PipelineConfig.json_schema()
    sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
