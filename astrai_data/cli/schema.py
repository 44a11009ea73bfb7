"""`astrai schema`: the JSON Schema of pipeline configurations, for editors."""

import json
import sys


def command() -> None:
    """Print the JSON Schema of a pipeline configuration; an editor completes and checks keys with it."""
    from astrai_data.config import PipelineConfig

    sys.stdout.write(json.dumps(PipelineConfig.json_schema(), indent=2, ensure_ascii=False) + "\n")
