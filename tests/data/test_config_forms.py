"""Written and hashed forms: acceptance case 1, round trips, and what the hash sees."""

import json
import string

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from astrai_data.config import PipelineConfig

EMPTY = {
    "version": 1,
    "input": {"sections": None, "sources": None},
    "mask": {},
    "mask_default": "mask",
    "preprocessing": {
        "max_seq_len": 2048,
        "min_chars": 50,
        "max_chars": 2000000,
        "max_items": None,
        "batch_size": 256,
        "packing_strategy": "simple",
        "max_packed_len": 8192,
        "truncation_mode": "keep_start",
    },
    "output": {
        "domain_key": None,
        "storage_format": "bin",
        "max_tokens_per_shard": 100000000,
        "dtype": {},
        "position_ids_mode": "doc_reset",
    },
}
TEXT = {"field": "text", "action": "train"}
CHAT = {"field": "messages", "action": "$role", "template": True}
FULL = {
    "$schema": "./pipeline.schema.json",
    "name": "full",
    "version": 2,
    "data": {
        "inputs": [{"path": "/data/a.jsonl", "format": "jsonl", "domain": "web", "fields": {"text": "content"}}],
        "keep_fields": ["url"],
        "max_record_bytes": 5000,
    },
    "tokenizer": {"path": "/models/t", "backend": "tokenizers"},
    "clean": [{"use": "trim", "ratio": 0.5, "nested": {"deep": [1.5]}}],
    "input": {
        "sections": [TEXT | {"append_eos": False}],
        "sources": None,
        "mask_scope": "message",
        "train_on": "last",
        "special_tokens": "parse",
        "template_date": "2026-01-02",
    },
    "mask": {"user": "mask"},
    "mask_default": "train",
    "preprocessing": {
        "max_seq_len": 9,
        "min_chars": 1,
        "max_chars": 99,
        "max_items": 4,
        "batch_size": 7,
        "packing_strategy": "simple",
        "max_packed_len": 12,
        "truncation_mode": "keep_end",
        "over_long": "truncate",
        "drop_untrained": False,
    },
    "output": {
        "domain_key": "kind",
        "storage_format": "bin",
        "max_tokens_per_shard": 50,
        "dtype": {"sequence": "int64"},
        "position_ids_mode": "continuous",
    },
    "run": {
        "seed": 3,
        "shuffle_rows": False,
        "validation_fraction": 0.1,
        "max_reject_ratio": 0.5,
        "min_rejects": 2,
    },
}


def of(**keys):
    return PipelineConfig.from_dict(keys)


def file_round_trip(config, path):
    config.to_file(path)
    return PipelineConfig.from_file(path)


def test_an_empty_configuration_is_the_reference_s():
    assert of().to_dict() == EMPTY
    assert of(version=1).to_dict() == EMPTY
    assert PipelineConfig.from_dict(EMPTY).to_dict() == EMPTY


def test_everything_given_comes_back():
    assert PipelineConfig.from_dict(FULL).to_dict() == FULL


def test_ours_at_its_default_is_left_out():
    spoken = {
        "version": 2,
        "data": {"inputs": [{"path": "a", "format": "auto", "domain": None}], "max_record_bytes": 2**26},
        "input": {"sections": [TEXT], "mask_scope": "completion"},
        "preprocessing": {"over_long": "split", "drop_untrained": True},
        "run": {"seed": 0, "shuffle_rows": True},
    }
    written = PipelineConfig.from_dict(spoken).to_dict()
    assert written["data"] == {"inputs": [{"path": "a"}]}
    assert written["input"] == {"sections": [TEXT], "sources": None}
    assert "run" not in written
    assert set(written["preprocessing"]) == set(EMPTY["preprocessing"])


def test_an_empty_map_of_sources_is_single_mode():
    config = of(input={"sections": [TEXT], "sources": {}})
    assert config.input.section_lists == [("input.sections", config.input.sections)]
    assert config.hashed_form() == of(input={"sections": [TEXT]}).hashed_form()


names = st.text(string.ascii_letters + "äß_ ", min_size=1, max_size=8)
counts = st.integers(1, 10**6)


def optional(**values):
    return st.fixed_dictionaries({}, optional=values)


texts = st.fixed_dictionaries(
    {"field": names, "action": st.sampled_from(["train", "mask"])},
    optional={"add_special_tokens": st.none() | st.booleans(), "append_eos": st.just(False)},
)
trained = texts.map(lambda section: section | {"action": "train", "append_eos": True})
chats = st.fixed_dictionaries(
    {"field": names, "action": st.sampled_from(["train", "mask", "$role"]), "template": st.just(True)},
    optional={"generation_prompt": st.booleans()},
)
sections = st.lists(texts | trained | chats, min_size=1, max_size=3)
sources = st.dictionaries(
    names, st.fixed_dictionaries({"sections": sections}, optional={"list_field": st.booleans(), "mask_key": names})
)
packings = st.sampled_from(
    [
        {},
        {"packing_strategy": "bfd_split"},
        {"packing_strategy": "concat", "over_long": "split"},
        {"packing_strategy": "bfd", "over_long": "drop"},
        {"packing_strategy": "simple", "over_long": "truncate", "max_seq_len": None},
    ]
)
inputs = st.fixed_dictionaries(
    {"path": names.map("/data/{}".format) | names.map("s3://bucket/{}".format)},
    optional={"format": st.sampled_from(["auto", "jsonl"]), "domain": st.none() | names},
)
configs = st.fixed_dictionaries(
    {
        "version": st.sampled_from([1, 2]),
        "input": st.one_of(
            st.fixed_dictionaries({"sections": st.none() | sections}, optional={"train_on": st.just("last")}),
            st.fixed_dictionaries({"sources": sources}, optional={"mask_scope": st.just("message")}),
        ),
    },
    optional={
        "name": names,
        "data": optional(inputs=st.lists(inputs, max_size=2), keep_fields=st.lists(names, unique_by=str.lower)),
        "tokenizer": st.none() | optional(path=names.map("/t/{}".format), backend=st.just("fastokens")),
        "mask": st.dictionaries(names, st.sampled_from(["train", "mask"])),
        "preprocessing": st.tuples(
            packings,
            optional(max_packed_len=counts, batch_size=counts, drop_untrained=st.booleans(), max_items=counts),
        ).map(lambda pair: pair[0] | pair[1]),
        "output": optional(
            domain_key=st.none() | names,
            storage_format=st.sampled_from(["bin", "arrow"]),
            dtype=st.dictionaries(st.sampled_from(["sequence", "loss_mask"]), st.just("uint8")),
        ),
        "run": optional(seed=counts, validation_fraction=st.floats(0, 0.99), shuffle_rows=st.booleans()),
    },
)


@settings(max_examples=300, deadline=None)
@given(configs)
def test_every_configuration_survives_its_dict(keys):
    config = PipelineConfig.from_dict(keys)
    written = json.loads(json.dumps(config.to_dict()))
    again = PipelineConfig.from_dict(written)
    assert again == config
    assert again.to_dict() == config.to_dict()
    assert again.hashed_form() == config.hashed_form()


@settings(max_examples=50, deadline=None)
@given(keys=configs)
def test_every_configuration_survives_its_file(tmp_path_factory, keys):
    config = PipelineConfig.from_dict(keys)
    assert file_round_trip(config, tmp_path_factory.mktemp("config") / "pipeline.json") == config


@settings(max_examples=100, deadline=None)
@given(configs)
def test_the_hash_sees_what_is_resolved_not_how_it_was_written(keys):
    """A configuration and its version-1 spelling with every default written out are one."""
    config = PipelineConfig.from_dict(keys)
    sources = config.input.sources or {}
    assume(all(source.mask_key_explicit for source in sources.values()))
    spelled = config.model_dump(mode="json") | {"version": 1, "name": "other"}
    spelled["output"]["dtype"] = {column: config.dtype_of(column) for column in config.hashed_form()["output"]["dtype"]}
    assert PipelineConfig.from_dict(spelled).hashed_form() == config.hashed_form()


# key path -> another value; every key of the configuration is in one of the two tables
CHANGES_BYTES = {
    "data.keep_fields": ["score"],
    "data.max_record_bytes": 6000,
    "clean": [{"use": "trim", "ratio": 0.25}],
    "input.sections": [TEXT],
    "input.sources": {"a": {"sections": [TEXT]}},
    "input.mask_scope": "completion",
    "input.train_on": "all",
    "input.special_tokens": "text",
    "input.template_date": "2026-01-03",
    "mask": {"user": "train"},
    "mask_default": "mask",
    "preprocessing.max_seq_len": 8,
    "preprocessing.min_chars": 2,
    "preprocessing.max_chars": 98,
    "preprocessing.max_items": 5,
    "preprocessing.packing_strategy": "bfd",
    "preprocessing.max_packed_len": 13,
    "preprocessing.truncation_mode": "keep_start",
    "preprocessing.over_long": "drop",
    "preprocessing.drop_untrained": True,
    "output.domain_key": "domain",
    "output.storage_format": "arrow",
    "output.max_tokens_per_shard": 51,
    "output.dtype": {"sequence": "uint16"},
    "run.seed": 4,
    "run.shuffle_rows": True,
    "run.validation_fraction": 0.2,
}
CHANGES_NOTHING = {
    "$schema": "other.json",
    "name": "other",
    "data.inputs": [{"path": "/data/b.jsonl"}],
    "tokenizer": {"path": "/models/u"},
    "preprocessing.batch_size": 8,
    "output.position_ids_mode": "none",
    "run.max_reject_ratio": 0.25,
    "run.min_rejects": 3,
}


def changed(key_path, value):
    if key_path == "input.sources":
        return PipelineConfig.from_dict(FULL).with_values({key_path: value, "input.sections": None})
    return PipelineConfig.from_dict(FULL).with_values({key_path: value})


def test_every_key_is_in_one_of_the_tables():
    parts = {"data", "input", "preprocessing", "output", "run"}
    keys = {f"{part}.{key}" for part in parts for key in FULL[part]} | (set(FULL) - parts - {"version"})
    assert keys == set(CHANGES_BYTES) | set(CHANGES_NOTHING)


@pytest.mark.parametrize("key_path", CHANGES_BYTES)
def test_what_changes_bytes_changes_the_hashed_form(key_path):
    other = changed(key_path, CHANGES_BYTES[key_path])
    assert other.hashed_form() != PipelineConfig.from_dict(FULL).hashed_form()


@pytest.mark.parametrize("key_path", CHANGES_NOTHING)
def test_what_changes_no_byte_is_not_hashed(key_path):
    other = changed(key_path, CHANGES_NOTHING[key_path])
    assert other.to_dict() != FULL
    assert other.hashed_form() == PipelineConfig.from_dict(FULL).hashed_form()


@pytest.mark.parametrize(
    "change",
    [
        {"field": "body"},
        {"action": "mask"},
        {"template": True},
        {"add_special_tokens": True},
        {"append_eos": False},
    ],
)
def test_every_key_of_a_section_is_hashed(change):
    other = of(version=2, input={"sections": [TEXT | change]})
    assert other.hashed_form() != of(version=2, input={"sections": [TEXT]}).hashed_form()


@pytest.mark.parametrize("change", [{"list_field": True}, {"mask_key": "m"}, {"mask_key": "a_mask"}])
def test_every_key_of_a_source_is_hashed(change):
    source = {"sections": [TEXT]}
    other = of(input={"sources": {"a": source | change}})
    assert other.hashed_form() != of(input={"sources": {"a": source}}).hashed_form()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"version": 2, "preprocessing": {"packing_strategy": "bfd_split"}}, {"version": 2}),
        ({"preprocessing": {"max_items": 0}}, {}),
        (
            {"version": 2, "input": {"sections": [TEXT | {"append_eos": True}, TEXT]}},
            {"version": 2, "input": {"sections": [TEXT, TEXT]}},
        ),
        (
            {"input": {"sections": [CHAT], "sources": {"a": {"sections": [TEXT]}}}},
            {"input": {"sources": {"a": {"sections": [TEXT]}}}},
        ),
        ({"output": {"dtype": {"sequence": "int32"}}}, {}),
    ],
)
def test_two_ways_to_say_one_thing_hash_the_same(one, other):
    assert PipelineConfig.from_dict(one).hashed_form() == PipelineConfig.from_dict(other).hashed_form()


def test_the_hashed_form_holds_no_fraction():
    form = PipelineConfig.from_dict(FULL).hashed_form()
    assert form["run"]["validation_fraction"] == "0.1"
    assert form["clean"] == [{"use": "trim", "ratio": "0.5", "nested": {"deep": ["1.5"]}}]
    assert json.loads(json.dumps(form)) == form
