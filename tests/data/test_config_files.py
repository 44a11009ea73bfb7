"""Configurations in files: paths relative to the file, ready-made names, and what a broken file says."""

import json

import pytest

from astrai_data.config import PipelineConfig, ready_made_pipelines
from astrai_data.errors import PipelineConfigError

TEXT = {"field": "text", "action": "train"}


@pytest.fixture
def write(tmp_path):
    """Write a configuration (a dict or the file's text) and give its path."""

    def write_file(content, name="pipeline.json", encoding="utf-8"):
        text = content if isinstance(content, str) else json.dumps(content)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding=encoding)
        return path

    return write_file


def error_of(path_or_name):
    with pytest.raises(PipelineConfigError) as caught:
        PipelineConfig.from_file(path_or_name)
    return caught.value


def test_paths_are_relative_to_the_file(write, tmp_path, monkeypatch):
    paths = ["data/*.jsonl", "../up.jsonl", "/abs/a.jsonl", "s3://bucket/a.jsonl", "hf://datasets/x"]
    inputs = [{"path": path} for path in paths]
    file = write({"data": {"inputs": inputs}, "tokenizer": {"path": "tok"}}, "conf/p.json")
    monkeypatch.chdir(tmp_path)
    for spelled in (file, str(file), "conf/p.json"):
        config = PipelineConfig.from_file(spelled)
        assert [spec.path for spec in config.data.inputs] == [
            f"{tmp_path}/conf/data/*.jsonl",
            f"{tmp_path}/conf/../up.jsonl",
            *paths[2:],
        ]
        assert config.tokenizer.path == f"{tmp_path}/conf/tok"


def test_written_paths_still_mean_the_same_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = PipelineConfig.from_dict({"data": {"inputs": [{"path": "a.jsonl"}, {"path": "s3://b/c"}]}})
    (tmp_path / "elsewhere").mkdir()
    config.to_file("elsewhere/p.json")
    again = PipelineConfig.from_file("elsewhere/p.json")
    assert [spec.path for spec in again.data.inputs] == [f"{tmp_path}/a.jsonl", "s3://b/c"]


def test_the_file_is_readable(tmp_path):
    PipelineConfig.from_dict({"name": "größer", "version": 2}).to_file(tmp_path / "p.json")
    text = (tmp_path / "p.json").read_text(encoding="utf-8")
    assert '\n  "name": "größer",\n  "version": 2,\n' in text


def test_a_byte_order_mark_is_no_matter(write):
    assert PipelineConfig.from_file(write({"version": 2}, encoding="utf-8-sig")).version == 2


@pytest.mark.parametrize("name", ["p.json", "settings.conf", "noending"])
def test_any_file_that_exists_is_read(write, name):
    assert PipelineConfig.from_file(str(write({"mask_default": "train"}, name))).mask_default == "train"


def test_a_ready_made_name_wins_over_the_working_directory(write, monkeypatch):
    monkeypatch.chdir(write({}, "pretrain").parent)
    assert PipelineConfig.from_file("pretrain").name == "pretrain"


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("pretrian", "pretrain"),
        ("sft_chat", "sft-chat"),
        ("nowhere/pretrain.json", "pretrain"),
        ("zzzzz", "check the path, or take a ready-made one by its name"),
    ],
)
def test_an_unknown_name_is_answered_with_the_ready_made_ones(asked, hint):
    error = error_of(asked)
    assert error.what.startswith("no such configuration")
    assert all(name in error.wanted for name in ready_made_pipelines())
    assert (str(error.where), error.hint) == (asked, hint)


def test_errors_name_file_and_key(write):
    path = write({"input": {"sections": [TEXT | {"action": "trian"}]}})
    assert error_of(path).where == f"{path}: input.sections[0].action"
    several = error_of(write({"preprocesing": {}, "outputs": {}}))
    assert several.where == str(path)
    assert "1. preprocesing: unknown key" in several.what


@pytest.mark.parametrize(
    ("text", "line", "column", "shown", "hint"),
    [
        ('{\n  "version": 2,\n}', 3, 1, "}", "comma"),
        ('{\n  "version": 2\n  "name": "x"\n}', 3, 3, '"name": "x"', "a comma between"),
        ("{\n  // mine\n}", 2, 3, "// mine", "comment"),
        ("{'version': 2}", 1, 2, "{'version': 2}", "double quotes"),
        ('{"version": 2', 1, 14, '{"version": 2', "mend this place"),
        ("", 1, 1, "an empty line", "mend this place"),
        ('{"a": 1} {"b": 2}', 1, 10, '{"a": 1} {"b": 2}', "mend this place"),
    ],
)
def test_a_syntax_error_shows_its_line(write, text, line, column, shown, hint):
    path = write(text)
    error = error_of(path)
    assert error.what.startswith("the configuration is not valid JSON")
    assert error.where == f"{path}, line {line}, column {column}"
    assert error.got == shown
    assert hint in (error.hint or "") if hint else error.hint is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"version": 1, "version": 2}', 'the key "version" is given twice in one object'),
        ('{"run": {"validation_fraction": NaN}}', "NaN is not a JSON number"),
        ("[1, 2]", "a pipeline configuration is a JSON object"),
    ],
)
def test_json_that_is_no_configuration(write, text, what):
    path = write(text)
    error = error_of(path)
    assert error.what == what
    assert str(path) in str(error.where)


def test_a_file_that_is_not_utf8_or_not_readable(tmp_path):
    path = tmp_path / "latin.json"
    path.write_bytes('{"name": "größer"}'.encode("latin-1"))
    assert error_of(path).where == f"{path}, byte 12"
    assert error_of(tmp_path).what == "no such configuration"
