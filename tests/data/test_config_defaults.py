"""Defaults by version, and those that depend on other keys."""

import pytest

from astrai_data.config import PipelineConfig
from astrai_data.config.part import ConfigPart

TEXT = {"field": "text", "action": "train"}
PROMPT = {"field": "prompt", "action": "mask"}
CHAT = {"field": "messages", "action": "$role", "template": True}

# key -> (version 1, version 2), as the design's table has it
TABLE = {
    "data.inputs": ((), ()),
    "data.keep_fields": ((), ()),
    "data.max_record_bytes": (2**26, 2**26),
    "tokenizer": (None, None),
    "clean": ((), ()),
    "input.mask_scope": ("message", "completion"),
    "input.train_on": ("all", "all"),
    "input.special_tokens": ("parse", "text"),
    "input.template_date": ("2024-07-26", "2024-07-26"),
    "preprocessing.max_seq_len": (2048, None),
    "preprocessing.min_chars": (50, 0),
    "preprocessing.max_chars": (2_000_000, 2_000_000),
    "preprocessing.max_items": (None, None),
    "preprocessing.batch_size": (256, 256),
    "preprocessing.packing_strategy": ("simple", "bfd"),
    "preprocessing.max_packed_len": (8192, 8192),
    "preprocessing.truncation_mode": ("keep_start", "keep_start"),
    "preprocessing.over_long": ("truncate", "split"),
    "preprocessing.drop_untrained": (False, True),
    "output.domain_key": (None, None),
    "output.storage_format": ("bin", "arrow"),
    "output.max_tokens_per_shard": (10**8, 10**8),
    "output.dtype": ({}, {}),
    "output.position_ids_mode": ("doc_reset", "doc_reset"),
    "run.seed": (0, 0),
    "run.shuffle_rows": (False, True),
    "run.validation_fraction": (0.0, 0.0),
    "run.max_reject_ratio": (0.01, 0.01),
    "run.min_rejects": (100, 100),
}


def built(version, sections=(), **keys):
    return PipelineConfig.from_dict({"version": version, "input": {"sections": list(sections)}, **keys})


def value_at(config, key_path):
    for key in key_path.split("."):
        config = getattr(config, key)
    return config


@pytest.mark.parametrize("key_path", TABLE)
def test_the_table_of_defaults(key_path):
    one, two = TABLE[key_path]
    for config, wanted in (({}, one), ({"version": 1}, one), ({"version": 2}, two)):
        assert value_at(PipelineConfig.from_dict(config), key_path) == wanted


def test_the_table_is_complete():
    config = PipelineConfig.from_dict({})
    parts = [name for name, value in config if isinstance(value, ConfigPart)]
    keys = {f"{part}.{key}" for part in parts for key in type(getattr(config, part)).model_fields}
    top = set(type(config).model_fields) - set(parts)
    assert keys | top == set(TABLE) | {
        *("schema_url", "name", "version", "mask", "mask_default", "input.sections", "input.sources")
    }


@pytest.mark.parametrize(
    ("version", "sections", "preprocessing", "wanted"),
    [
        (1, [TEXT], {}, "truncate"),
        (1, [CHAT], {}, "truncate"),
        (1, [TEXT], {"packing_strategy": "bfd"}, "truncate"),
        (1, [TEXT], {"packing_strategy": "bfd_split"}, "split"),
        (1, [CHAT], {"packing_strategy": "concat"}, "split"),
        (2, [TEXT], {}, "split"),
        (2, [TEXT, TEXT], {}, "split"),
        (2, [CHAT], {}, "drop"),
        (2, [CHAT | {"action": "train"}], {}, "drop"),
        (2, [PROMPT, TEXT], {}, "drop"),
        (2, [PROMPT, TEXT], {"packing_strategy": "bfd_split"}, "split"),
        (2, [PROMPT, TEXT], {"over_long": "truncate"}, "truncate"),
        (2, [TEXT], {"packing_strategy": "bfd_split", "over_long": "split"}, "split"),
    ],
)
def test_over_long(version, sections, preprocessing, wanted):
    assert built(version, sections, preprocessing=preprocessing).preprocessing.over_long == wanted


@pytest.mark.parametrize(
    ("version", "sections", "wanted"),
    [
        (1, [TEXT], [False]),
        (2, [TEXT], [True]),
        (2, [TEXT | {"append_eos": False}], [False]),
        (1, [TEXT | {"append_eos": True}], [True]),
        (2, [PROMPT, TEXT], [False, True]),
        (2, [TEXT, PROMPT], [True, False]),
        (2, [TEXT, TEXT], [False, True]),
        (2, [TEXT, TEXT | {"append_eos": False}], [False, False]),
        (2, [CHAT], [False]),
        (2, [CHAT | {"action": "train"}], [False]),
        (2, [PROMPT], [False]),
    ],
)
def test_append_eos(version, sections, wanted):
    assert [section.append_eos for section in built(version, sections).input.sections] == wanted


def test_what_was_given_is_still_known():
    given = built(2, [TEXT | {"append_eos": True}, TEXT]).input.sections
    assert [section.append_eos_explicit for section in given] == [True, False]


@pytest.mark.parametrize(
    ("sections", "wanted"),
    [
        ([TEXT], False),
        ([TEXT, TEXT], False),
        ([], False),
        ([PROMPT, TEXT], True),
        ([CHAT], True),
        ([CHAT | {"action": "train"}], True),
    ],
)
def test_a_loss_mask_exists_by_configuration_alone(sections, wanted):
    assert built(2, sections).has_loss_mask == wanted


def test_column_types():
    assert built(1).dtype_of("sequence") == "int32"
    assert built(2).dtype_of("sequence") == "auto"
    assert built(2, output={"dtype": {"sequence": "int64"}}).dtype_of("sequence") == "int64"


def test_sources_are_resolved_like_sections():
    rewards = {"sections": [{"field": "rewards", "action": "value"}]}
    named = {"sections": [TEXT], "mask_key": "masks"}
    sources = {"a": {"sections": [PROMPT, TEXT]}, "b": named, "rewards": rewards}
    config = PipelineConfig.from_dict({"version": 2, "input": {"sources": sources}})
    assert [section.append_eos for section in config.input.sources["a"].sections] == [False, True]
    assert [source.mask_key for source in config.input.sources.values()] == [
        "a_mask",
        "masks",
        "rewards_mask",
    ]
    assert [source.mask_key_explicit for source in config.input.sources.values()] == [False, True, False]


def test_with_values_checks_and_keeps_what_was_given():
    config = built(2, [TEXT], data={"inputs": [{"path": "a"}]})
    more = config.with_values(
        {
            "preprocessing.max_items": 5,
            "tokenizer.path": "t",
            "data.inputs": [*config.data.inputs, {"path": "b"}],
        }
    )
    assert more.preprocessing.max_items == 5
    assert more.tokenizer.path == "t"
    assert [spec.path for spec in more.data.inputs] == ["a", "b"]
    assert not more.input.sections[0].append_eos_explicit
    assert config.with_values({"version": 1}).preprocessing.max_seq_len == 2048
    with pytest.raises(ValueError, match="unknown key"):
        config.with_values({"preprocessing.max_item": 5})
