"""Runs that keep nothing, or lose much for its roles: what they say, and that they are in no later run's way."""

import json

import pyarrow as pa
import pytest

from astrai_data import Pipeline, PipelineConfig, TokenStore
from astrai_data.build import untrained_roles
from astrai_data.errors import RunError

from .running import TEXT_CONFIG, digests, write_jsonl
from .toys import write_bpe_tokenizer, write_toy_tokenizer

CHAT = {
    "version": 2,
    "input": {"sections": [{"field": "messages", "action": "$role", "template": True}]},
    "mask": {"assistant": "train"},
}
OTHER_FIELD = TEXT_CONFIG | {"input": {"sections": [{"field": "body", "action": "train"}]}}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return write_toy_tokenizer(tmp_path_factory.mktemp("toy"), "C0")


@pytest.fixture(scope="module")
def chatml(tmp_path_factory):
    return write_bpe_tokenizer(tmp_path_factory.mktemp("chatml"))


def run(root, tokenizer, inputs, config=TEXT_CONFIG, **options):
    return Pipeline(PipelineConfig.from_dict(config), inputs, root, tokenizer).run(**options)


def chat(*roles: str) -> dict:
    return {"messages": [{"role": role, "content": f"what {role} says"} for role in roles]}


@pytest.fixture
def failed(tmp_path, toy):
    """A folder in which a run kept nothing: the field has another name."""
    source = write_jsonl(tmp_path / "in.jsonl", [{"body": "abc"}] * 3)
    with pytest.raises(RunError, match="nothing was kept of 3 records") as caught:
        run(tmp_path / "store", toy, [source])
    assert "run again with the same -o" in str(caught.value)
    return source


def assert_as_fresh(tmp_path, tokenizer, inputs, config):
    run(tmp_path / "fresh", tokenizer, inputs, config)
    assert digests(tmp_path / "store") == digests(tmp_path / "fresh")
    assert TokenStore.open(tmp_path / "store").verify() == []


def test_another_configuration_takes_the_place_of_work_that_kept_nothing(tmp_path, toy, failed):
    run(tmp_path / "store", toy, [failed], OTHER_FIELD)
    assert_as_fresh(tmp_path, toy, [failed], OTHER_FIELD)


def test_other_inputs_take_the_place_of_those_that_gave_nothing(tmp_path, toy, failed):
    other = write_jsonl(tmp_path / "other.jsonl", [{"text": "abc"}])
    run(tmp_path / "store", toy, [other])
    assert_as_fresh(tmp_path, toy, [other], TEXT_CONFIG)


def test_the_same_command_says_the_same_without_new_work(tmp_path, toy, failed):
    before = digests(tmp_path / "store")
    with pytest.raises(RunError, match="nothing was kept of 3 records"):
        run(tmp_path / "store", toy, [failed])
    assert digests(tmp_path / "store") == before


def test_rejects_stay_until_another_run_comes_to_its_end(tmp_path, toy):
    """The message points at them; the next run needs no --overwrite, whether many or all were rejected."""
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": 5, "body": "abc"}] * 3)
    strict = {"run": {"max_reject_ratio": 0.0, "min_rejects": 1}}
    with pytest.raises(RunError, match="too many records were rejected: 3 of 3") as caught:
        run(tmp_path / "store", toy, [source], TEXT_CONFIG | strict)
    assert str(tmp_path / "store" / "rejects") in str(caught.value)
    assert len(list((tmp_path / "store" / "rejects").iterdir())) == 1
    run(tmp_path / "store", toy, [source], OTHER_FIELD | strict)
    assert_as_fresh(tmp_path, toy, [source], OTHER_FIELD | strict)


def test_work_that_kept_something_is_protected(tmp_path, toy):
    good = write_jsonl(tmp_path / "good.jsonl", [{"text": "abc"}])
    bad = write_jsonl(tmp_path / "bad.jsonl", [{"text": 5}])
    strict = {"run": {"max_reject_ratio": 0.0, "min_rejects": 1}}
    with pytest.raises(RunError, match="too many records"):
        run(tmp_path / "store", toy, [bad, good], TEXT_CONFIG | strict)
    with pytest.raises(RunError, match="unfinished work of another configuration"):
        run(tmp_path / "store", toy, [bad, good], OTHER_FIELD)


def test_a_store_is_protected_from_a_run_that_keeps_nothing(tmp_path, toy):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "abc"}])
    run(tmp_path / "store", toy, [source])
    manifest = (tmp_path / "store" / "manifest.json").read_bytes()
    with pytest.raises(RunError, match="nothing was kept"):
        run(tmp_path / "store", toy, [source], OTHER_FIELD, overwrite=True)
    with pytest.raises(RunError, match="a store of another configuration"):
        run(tmp_path / "store", toy, [source], OTHER_FIELD)
    assert (tmp_path / "store" / "manifest.json").read_bytes() == manifest
    assert TokenStore.open(tmp_path / "store").verify() == []


STRANGE = "`mask` trains 'assistant', the roles of the messages are 'human', 'gpt'"
HINT = 'name the roles to train in the pipeline\'s `mask`, such as "mask": {"gpt": "train"}'


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_nothing_kept_for_its_roles_names_them(tmp_path, chatml, suffix):
    records = [chat("human", "gpt", "human", "gpt"), chat("human", "gpt")]
    source = write_jsonl(tmp_path / "in.jsonl", records)
    if suffix == "json":
        source = tmp_path / "in.json"
        source.write_text(json.dumps(records))
    with pytest.raises(RunError, match="nothing was kept of 2 records") as caught:
        run(tmp_path / "store", chatml, [source], CHAT)
    assert f"got: 2 filtered nothing_to_train: {STRANGE}\n" in str(caught.value)
    assert f"try: {HINT}; then run again" in str(caught.value)
    assert run(tmp_path / "store", chatml, [source], CHAT | {"mask": {"gpt": "train"}}).totals["num_documents"] == 2


def test_much_lost_for_strange_roles_is_told(tmp_path, chatml, caplog):
    records = [chat("human", "gpt"), *[chat("user", "assistant")] * 20, chat("user")]
    run(tmp_path / "store", chatml, [write_jsonl(tmp_path / "in.jsonl", records)], CHAT)
    warning = "2 of 22 records have nothing to train: `mask` trains 'assistant', "
    assert warning + f"the roles of the messages are 'human', 'gpt', 'user'; {HINT}" in caplog.messages


def test_usual_roles_that_are_masked_are_no_cause_for_a_warning(tmp_path, chatml, caplog):
    records = [*[chat("user", "assistant")] * 20, chat("user")]
    run(tmp_path / "store", chatml, [write_jsonl(tmp_path / "in.jsonl", records)], CHAT)
    assert not [message for message in caplog.messages if "nothing to train" in message]


def test_a_trained_role_that_was_cut_off_is_not_blamed(tmp_path, chatml):
    config = CHAT | {"preprocessing": {"max_seq_len": 4}}
    with pytest.raises(RunError, match="nothing was kept") as caught:
        run(tmp_path / "store", chatml, [write_jsonl(tmp_path / "in.jsonl", [chat("user", "assistant")])], config)
    assert "got: 1 filtered nothing_to_train\n" in str(caught.value)
    assert "filters in `preprocessing`" in str(caught.value)


ROLES = {
    "no mask": ({"mask": {"user": "mask"}}, ["user", "assistant"], "trains no role", '{"assistant": "train"}', False),
    "two trained": ({"mask": {"a": "train", "b": "train"}}, ["c"], "trains 'a', 'b'", '{"c": "train"}', True),
    "default train": ({"mask_default": "train", "mask": {"x": "mask"}}, ["x"], "all roles but 'x'", '{"x": ', False),
    "many": ({}, [f"r{i}" for i in range(9)], "'r0', 'r1', 'r2', 'r3', 'r4' and 4 more", '{"r8": "train"}', True),
    "quotes": ({}, ['a"\n\x1b'], "are 'a\"\\n\\x1b'", r'{"a\"\n\u001b": "train"}', True),
    "long": ({}, ["x" * 500], f"'{'x' * 40}'", f'{{"{"x" * 40}": "train"}}', True),
}


@pytest.mark.parametrize("name", ROLES)
def test_what_is_said_of_roles(name):
    keys, roles, told, hint, has_strange = ROLES[name]
    found = untrained_roles(PipelineConfig.from_dict(CHAT | keys), [batch(chat(*roles)["messages"])])
    assert told in found.told
    assert hint in found.hint
    assert found.has_strange is has_strange


def batch(*values: object):
    column = pa.array([None if value is None else json.dumps(value).encode() for value in values], pa.large_binary())
    return pa.RecordBatch.from_arrays([column], ["json:messages"])


@pytest.mark.parametrize("value", [None, [], 5, {"role": "x"}, ["x"], [{}], [{"role": 5}]])
def test_what_is_no_conversation_has_no_roles(value):
    assert untrained_roles(PipelineConfig.from_dict(CHAT), [batch(value, chat("assistant")["messages"])]) is None


def test_a_trained_text_beside_the_conversation_is_the_cause_of_nothing():
    sections = [*CHAT["input"]["sections"], {"field": "text", "action": "train"}]
    config = PipelineConfig.from_dict(CHAT | {"input": {"sections": sections}})
    assert untrained_roles(config, [batch(chat("x")["messages"])]) is None
