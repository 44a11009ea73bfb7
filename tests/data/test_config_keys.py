"""Keys, types, choices and the rules between keys: what is accepted, and what an error says."""

import pickle

import pytest

from astrai_data.config import PipelineConfig
from astrai_data.errors import PipelineConfigError

TEXT = {"field": "text", "action": "train"}
CHAT = {"field": "messages", "action": "$role", "template": True}


def nested(key_path, value):
    """`nested("a.b", 1)` -> `{"a": {"b": 1}}`."""
    for key in reversed(key_path.split(".")):
        value = {key: value}
    return value


def value_at(config, key_path):
    for key in key_path.split("."):
        config = getattr(config, key)
    return config


def error_of(config):
    with pytest.raises(PipelineConfigError) as caught:
        PipelineConfig.from_dict(config)
    assert "pydantic" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("key_path", "given", "kept"),
    [
        ("preprocessing.max_seq_len", "128", 128),
        ("preprocessing.max_seq_len", 128.0, 128),
        ("preprocessing.max_seq_len", None, None),
        ("preprocessing.batch_size", True, 1),
        ("preprocessing.min_chars", 0, 0),
        ("preprocessing.max_items", 0, None),
        ("preprocessing.max_items", None, None),
        ("preprocessing.max_items", 3, 3),
        ("preprocessing.packing_strategy", "concat", "concat"),
        ("preprocessing.drop_untrained", "true", True),
        ("output.storage_format", "bin", "bin"),
        ("output.dtype", {"loss_mask": "bool"}, {"loss_mask": "bool"}),
        ("output.max_tokens_per_shard", 5, 5),
        ("run.validation_fraction", "0.25", 0.25),
        ("run.validation_fraction", 0, 0.0),
        ("data.max_record_bytes", 1, 1),
        ("input.template_date", "20260102", "2026-01-02"),
        ("mask", {"assistant": "train"}, {"assistant": "train"}),
    ],
)
def test_values_are_coerced_as_the_reference_does(key_path, given, kept):
    assert value_at(PipelineConfig.from_dict(nested(key_path, given)), key_path) == kept


@pytest.mark.parametrize(
    ("key_path", "given", "wanted"),
    [
        ("version", 3, "1 or 2"),
        ("version", None, "a whole number"),
        ("preprocessing.max_seq_len", 0, "a number above 0, or null"),
        ("preprocessing.max_seq_len", -1, "a number above 0, or null"),
        ("preprocessing.max_seq_len", 128.5, "a whole number, or null"),
        ("preprocessing.max_seq_len", "many", "a whole number, or null"),
        ("preprocessing.min_chars", -1, "a number of at least 0"),
        ("preprocessing.max_chars", 0, "a number above 0"),
        ("preprocessing.max_items", -1, "a number of at least 0, or null"),
        ("preprocessing.batch_size", 0, "a number above 0"),
        ("preprocessing.packing_strategy", "zzz", "one of simple, bfd, bfd_split, concat"),
        ("preprocessing.truncation_mode", "mid", "one of keep_start, keep_end"),
        ("preprocessing.over_long", "cut", "one of truncate, split, drop"),
        ("preprocessing.drop_untrained", "perhaps", "true or false"),
        ("preprocessing", None, "an object"),
        ("preprocessing", [], "an object"),
        ("output.storage_format", "h5", "one of arrow, bin"),
        ("output.storage_format", "jsonl", "one of arrow, bin"),
        ("output.position_ids_mode", None, "one of none, doc_reset, continuous"),
        ("output.max_tokens_per_shard", -1, "a number above 0"),
        ("output.dtype", [], "an object"),
        ("output.domain_key", "", "a string that is not empty, or null"),
        ("input.sections", "text", "a list, or null"),
        ("input.sources", [], "an object, or null"),
        ("input.train_on", "first", "one of all, last"),
        ("input.mask_scope", "turn", "one of message, completion"),
        ("input.special_tokens", True, "one of parse, text"),
        ("input.template_date", "yesterday", "a date such as 2024-07-26"),
        ("mask_default", "skip", "one of train, mask"),
        ("mask", "train", "an object"),
        ("run.seed", -1, "a number of at least 0"),
        ("run.seed", 2**63, f"a number below {2**63}"),
        ("run.seed", 2**70, None),
        ("preprocessing.max_packed_len", 2**63, f"a number below {2**63}"),
        ("preprocessing.max_packed_len", 2**70, None),
        ("preprocessing.min_chars", 2**63, f"a number below {2**63}"),
        ("preprocessing.max_seq_len", 2**63, f"a number below {2**63}, or null"),
        ("output.max_tokens_per_shard", 2**63, f"a number below {2**63}"),
        ("data.max_record_bytes", 2**63, f"a number below {2**63}"),
        (
            "output.domain_key",
            "\udcff",
            "a name in UTF-8; its folder, or a glob such as dir/*, reaches a file with another, or null",
        ),
        ("run.validation_fraction", 1, "a number below 1"),
        ("run.validation_fraction", float("nan"), "a finite number"),
        ("run.max_reject_ratio", 1.5, "a number of at most 1"),
        ("run.max_reject_ratio", "x", "a number"),
        ("data.inputs", "a.jsonl", "a list"),
        ("data.max_record_bytes", 0, "a number above 0"),
        ("tokenizer", "folder", "an object, or null"),
        ("tokenizer.backend", "fast", "one of auto, tokenizers, fastokens"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_wanted(key_path, given, wanted):
    error = error_of(nested(key_path, given))
    assert error.where == key_path
    assert error.got
    if wanted:
        assert error.wanted == wanted


@pytest.mark.parametrize(
    ("config", "where", "hint"),
    [
        ({"preprocesing": {}}, "preprocesing", "preprocessing"),
        ({"max_seq_len": 8}, "max_seq_len", "preprocessing.max_seq_len"),
        ({"inputs": []}, "inputs", "input or data.inputs"),
        ({"template": True}, "template", "input.sections[].template"),
        ({"preprocessing": {"max_packed_length": 8}}, "preprocessing.max_packed_length", "max_packed_len"),
        (
            {"input": {"sections": [TEXT, TEXT | {"tempalte": True}]}},
            "input.sections[1].tempalte",
            "template",
        ),
        (
            {"input": {"sources": {"sections": {"lst_field": 1}}}},
            "input.sources.sections.lst_field",
            "list_field",
        ),
        (
            {"input": {"sources": {"a": {"sections": [TEXT | {"add_special_token": True}]}}}},
            "input.sources.a.sections[0].add_special_token",
            "add_special_tokens",
        ),
        ({"data": {"inputs": [{"path": "a", "fmt": "csv"}]}}, "data.inputs[0].fmt", "format"),
        ({"$schemas": "x"}, "$schemas", "$schema"),
        ({"verbose": 1}, "verbose", "take it out"),
        ({3: 4}, "[3]", "take it out"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(config, where, hint):
    error = error_of(config)
    assert (error.where, error.hint) == (where, hint)
    assert error.what.startswith("unknown key")
    assert error.wanted.startswith("one of ")


@pytest.mark.parametrize(
    ("section", "where", "what", "hint"),
    [
        ({"action": "train"}, "input.sections[0].field", 'the key "field" is missing', None),
        ({"field": "text"}, "input.sections[0].action", 'the key "action" is missing', None),
        (TEXT | {"action": "trian"}, "input.sections[0].action", "wrong value", "train"),
        (TEXT | {"action": "$role"}, "input.sections[0].action", "only messages have roles", None),
        (TEXT | {"action": "value"}, "input.sections[0].action", "the action value belongs in", None),
        (TEXT | {"generation_prompt": True}, "input.sections[0].generation_prompt", "only a template", None),
        (CHAT | {"append_eos": True}, "input.sections[0].append_eos", "the end-of-text token follows", None),
        (
            TEXT | {"action": "mask", "append_eos": True},
            "input.sections[0].append_eos",
            "the end-of-text",
            None,
        ),
        (TEXT | {"append_eos": None}, "input.sections[0].append_eos", "wrong value", None),
        ("text", "input.sections[0]", "wrong value", None),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_sections_that_make_no_sense_are_refused(version, section, where, what, hint):
    error = error_of({"version": version, "input": {"sections": [section]}})
    assert error.where == where
    assert error.what.startswith(what)
    assert hint is None or error.hint == hint


@pytest.mark.parametrize("action", ["train", "mask", "$role"])
def test_every_action_of_a_template_section_is_accepted(action):
    config = PipelineConfig.from_dict({"input": {"sections": [CHAT | {"action": action}]}})
    assert config.input.sections[0].action == action


@pytest.mark.parametrize(
    ("config", "where"),
    [
        (
            {"preprocessing": {"packing_strategy": "bfd_split", "over_long": "drop"}},
            "preprocessing.over_long",
        ),
        (
            {"preprocessing": {"packing_strategy": "concat", "over_long": "truncate"}},
            "preprocessing.over_long",
        ),
        ({"preprocessing": {"max_chars": 20}}, "preprocessing.max_chars"),
        ({"preprocessing": {"min_chars": 9, "max_chars": 8}}, "preprocessing.max_chars"),
        (
            {"version": 2, "preprocessing": {"over_long": "truncate", "max_seq_len": 9000}},
            "preprocessing.max_seq_len",
        ),
        ({"version": 2, "input": {"sections": [TEXT], "sources": {"a": {"sections": [TEXT]}}}}, "input"),
        ({"data": {"keep_fields": ["url", "url"]}}, "data.keep_fields"),
        ({"output": {"dtype": {"sequences": "int32"}}}, "output.dtype.sequences"),
        ({"output": {"dtype": {"sequence": "float32"}}}, "output.dtype.sequence"),
        ({"output": {"dtype": {"loss_mask": "boolean"}}}, "output.dtype.loss_mask"),
        ({"output": {"dtype": {"x": "nonsense"}}}, "output.dtype.x"),
        (
            {
                "input": {"sections": [TEXT]},
                "data": {"inputs": [{"path": "a", "fields": {"txt": "content"}}]},
            },
            "data.inputs[0].fields.txt",
        ),
        (
            {"input": {"sources": {"r": {"sections": [{"field": "r", "action": "value"}, TEXT]}}}},
            "input.sources.r.sections",
        ),
        ({"mask": {"assistant": "trian"}}, "mask.assistant"),
    ],
)
def test_rules_between_keys(config, where):
    assert error_of(config).where == where


def test_what_the_reference_allows_stays_allowed_in_version_1():
    both = {"input": {"sections": [TEXT], "sources": {"a": {"sections": [CHAT]}}}}
    assert PipelineConfig.from_dict(both).input.section_lists[0][0] == "input.sources.a.sections"
    caps = {"preprocessing": {"max_seq_len": 100, "max_packed_len": 10}}
    assert PipelineConfig.from_dict(caps).preprocessing.over_long == "truncate"
    assert PipelineConfig.from_dict({"mask": {"prompt": "mask"}}).mask == {"prompt": "mask"}


@pytest.mark.parametrize(
    ("key_path", "value", "hint"),
    [
        ("preprocessing.packing_strategy", "greedy", "`bfd`"),
        ("output.storage_format", "jsonl", "`arrow`; `astrai export"),
        ("output.storage_format", "h5", "`arrow`"),
        ("preprocessing.packing_strategy", "bdf", "bfd"),
        ("mask.assistant", "trian", "train"),
        ("output.dtype.loss_mask", "boole", "bool"),
    ],
)
def test_a_wrong_choice_is_answered_with_a_right_one(key_path, value, hint):
    assert error_of(nested(key_path, value)).hint.startswith(hint)


def test_all_problems_are_listed_at_once():
    error = error_of({"preprocesing": {}, "mask_default": "x", "input": {"sections": [{"action": "trian"}]}})
    assert error.what.startswith("the pipeline configuration has 4 problems:")
    places = ["preprocesing", "mask_default", "input.sections[0].field", "input.sections[0].action"]
    assert all(f"{place}: " in error.what for place in places)
    assert all(word in error.what for word in ("got:", "wanted:", "try: preprocessing", "try: train"))


def test_a_long_value_is_shortened():
    assert len(error_of({"mask_default": "x" * 10_000}).got) < 200


@pytest.mark.parametrize("config", [[], "x", None, 3])
def test_a_configuration_is_an_object(config):
    assert error_of(config).wanted == "an object"


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ({}, "input.sections"),
        ({"input": {"sections": []}}, "input.sections"),
        ({"input": {"sources": {"a": {"sections": [TEXT]}}}}, "input.sources"),
        ({"input": {"sections": [TEXT]}, "clean": [{"use": "trim"}]}, "clean"),
        ({"version": 2, "input": {"sections": [TEXT | {"action": "mask"}]}}, "input.sections"),
        ({"version": 2, "input": {"sections": [CHAT]}, "mask": {"user": "mask"}}, "input.sections"),
    ],
)
def test_a_configuration_can_be_valid_and_not_runnable(config, where):
    valid = PipelineConfig.from_dict(config)
    with pytest.raises(PipelineConfigError) as caught:
        valid.check_runnable()
    assert caught.value.where == where


@pytest.mark.parametrize(
    "config",
    [
        {"input": {"sections": [TEXT]}},
        {"input": {"sections": [TEXT], "sources": {}}},
        {"input": {"sections": [CHAT]}},
        {"version": 2, "input": {"sections": [CHAT]}, "mask": {"assistant": "train"}},
        {"version": 2, "input": {"sections": [CHAT]}, "mask_default": "train"},
        {"version": 2, "input": {"sections": [CHAT | {"action": "train"}]}},
        {"version": 2, "input": {"sections": [CHAT]}, "preprocessing": {"drop_untrained": False}},
    ],
)
def test_runnable_configurations(config):
    PipelineConfig.from_dict(config).check_runnable()


def test_a_configuration_is_frozen_and_crosses_process_borders():
    config = PipelineConfig.from_dict({"version": 2, "input": {"sections": [TEXT | {"append_eos": True}]}})
    with pytest.raises(ValueError, match="frozen"):
        config.preprocessing.max_packed_len = 5
    copy = pickle.loads(pickle.dumps(config))
    assert copy == config
    assert copy.input.sections[0].append_eos_explicit


def test_building_from_keywords_is_the_same():
    assert PipelineConfig(version=2, mask_default="train").preprocessing.packing_strategy == "bfd"
    with pytest.raises(PipelineConfigError, match="unknown key"):
        PipelineConfig(verison=2)
