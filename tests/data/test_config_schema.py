"""The JSON Schema: complete, described, and the one that lies beside the ready-made pipelines."""

import json

from typer import Typer
from typer.testing import CliRunner

from astrai_data.cli.schema import command
from astrai_data.config import PipelineConfig, ready_made_pipelines
from astrai_data.config.part import ConfigPart

SCHEMA = PipelineConfig.json_schema()
PARTS = {"PipelineConfig": SCHEMA, **SCHEMA["$defs"]}


def all_parts(part=ConfigPart):
    """The parts of pipeline configurations; models have configurations of the same kind."""
    for child in part.__subclasses__():
        if child.__module__.startswith("astrai_data.config."):
            yield child
            yield from all_parts(child)


def described(node):
    """The description of a key, its own or that of the object it refers to."""
    name = node.get("$ref", "").rpartition("/")[2]
    return node.get("description") or PARTS.get(name, {}).get("description")


def test_every_key_is_in_the_schema_with_its_meaning():
    for part in all_parts():
        node = PARTS[part.__name__]
        assert set(node["properties"]) == {field.alias or name for name, field in part.model_fields.items()}
        for name, key in node["properties"].items():
            assert len(described(key)) > 10, (part, name)
            assert "\n" not in described(key)


def test_every_default_that_differs_by_version_says_so():
    for part in all_parts():
        for name in part.v1_defaults:
            assert "version 1" in part.model_fields[name].description


def test_unknown_keys_are_refused_except_in_cleaning_steps():
    loose = [name for name, node in PARTS.items() if node["additionalProperties"]]
    assert loose == ["CleanStep"]


def test_choices_are_listed():
    assert SCHEMA["properties"]["version"]["enum"] == [1, 2]
    strategies = PARTS["PreprocessingConfig"]["properties"]["packing_strategy"]["enum"]
    assert strategies == ["simple", "bfd", "bfd_split", "concat"]


def test_the_command_prints_it():
    app = Typer()
    app.command()(command)
    result = CliRunner().invoke(app)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == SCHEMA


def test_the_schema_beside_the_pipelines_is_this_one():
    """If this fails: `astrai schema > pipelines/pipeline.schema.json`."""
    folder = ready_made_pipelines()["pretrain"].parent
    assert json.loads((folder / "pipeline.schema.json").read_text(encoding="utf-8")) == SCHEMA


def test_a_ready_made_pipeline_is_printed_to_start_from(tmp_path):
    app = Typer()
    app.command()(command)
    for name in ready_made_pipelines():
        printed = CliRunner().invoke(app, [name]).stdout
        (tmp_path / "mine.json").write_text(printed)
        mine, theirs = PipelineConfig.from_file(tmp_path / "mine.json"), PipelineConfig.from_file(name)
        assert mine.hashed_form() == theirs.hashed_form()
        assert mine.schema_url is None
