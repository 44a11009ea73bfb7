"""Runs on a store that is there already: inputs that changed, moved or went, parts that are lost, other options."""

import json
import logging
import os
import shutil

import pytest

from astrai_data import Pipeline, PipelineConfig, TokenStore
from astrai_data.errors import AstraiError, PipelineConfigError, RunError

from .running import astrai, digests, store_id, write_config, write_jsonl
from .toys import write_toy_tokenizer

V1 = {"input": {"sections": [{"field": "text", "action": "train"}]}, "preprocessing": {"min_chars": 0}}
MIB = 1 << 20


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return write_toy_tokenizer(tmp_path_factory.mktemp("toy"), "C0")


def run(root, toy, inputs: list, config: dict = V1, **options):
    return Pipeline(PipelineConfig.from_dict(config), inputs, root / "store", toy).run(**options)


def texts_of(root) -> list[str]:
    store = TokenStore.open(root / "store")
    return ["".join(map(chr, row.tolist())) for i in range(len(store.shards)) for row in store.tokens(i)]


def write_long(path, middle: str) -> None:
    """A file whose first and last MiB are always the same."""
    edge = json.dumps({"unread": "x" * (MIB + 100)})
    path.write_text("\n".join([edge, json.dumps({"text": middle}), edge]) + "\n")


def test_a_change_in_the_middle_is_noticed(tmp_path, toy):
    write_long(tmp_path / "in.jsonl", "before")
    run(tmp_path, toy, [tmp_path / "in.jsonl"])
    write_long(tmp_path / "in.jsonl", "behind")
    with pytest.raises(RunError, match="other inputs") as caught:
        run(tmp_path, toy, [tmp_path / "in.jsonl"])
    assert "content has changed" in str(caught.value)
    assert texts_of(tmp_path) == ["before"]
    run(tmp_path, toy, [tmp_path / "in.jsonl"], update=True)
    assert texts_of(tmp_path) == ["behind"]
    write_long(tmp_path / "again.jsonl", "behind")
    (tmp_path / "fresh").mkdir()
    os.rename(tmp_path / "again.jsonl", tmp_path / "fresh" / "in.jsonl")
    run(tmp_path / "fresh", toy, [tmp_path / "fresh" / "in.jsonl"])
    assert store_id(tmp_path / "store") == store_id(tmp_path / "fresh" / "store")


@pytest.mark.parametrize("change", ["gone", "another template"])
def test_a_tokenizer_that_changes_under_a_run_is_kept_as_it_was(tmp_path, change):
    tokenizer = write_toy_tokenizer(tmp_path / "tokenizer", "C0")
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "ab"}])
    run(tmp_path, tokenizer, [source])
    before = digests(tmp_path / "store")

    def spoil(_) -> None:
        if change == "gone":
            shutil.rmtree(tokenizer, ignore_errors=True)
        else:
            (tokenizer / "chat_template.jinja").write_text("another")

    shutil.rmtree(tmp_path / "store")
    run(tmp_path, tokenizer, [source], progress=spoil)
    assert digests(tmp_path / "store") == before


def test_an_output_folder_that_is_emptied_ends_the_run(tmp_path, toy):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "ab"}])
    with pytest.raises(RunError, match="moved or emptied"):
        run(tmp_path, toy, [source], progress=lambda _: shutil.rmtree(tmp_path / "store" / ".work", ignore_errors=True))


def test_an_output_folder_whose_name_is_not_utf8(tmp_path, toy):
    with pytest.raises(RunError, match="not UTF-8"):
        Pipeline(PipelineConfig.from_dict(V1), ["x"], os.fsdecode(os.fsencode(tmp_path) + b"/\xff"), toy)


def test_a_touched_file_changes_nothing(tmp_path, toy):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "ab"}])
    run(tmp_path, toy, [source])
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")}
    os.utime(source, (1, 1))
    run(tmp_path, toy, [source])
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")} == before


@pytest.mark.parametrize("lost", ["part-000/sequence.bin", "documents.parquet", "task.json"])
def test_a_lost_file_of_a_task_is_made_again(tmp_path, toy, lost):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "ab"}])
    run(tmp_path, toy, [source])
    before = digests(tmp_path / "store")
    [path] = (tmp_path / "store").glob(f"data/*/{lost}")
    path.unlink()
    run(tmp_path, toy, [source])
    assert digests(tmp_path / "store") == before


def test_a_renamed_input_is_renamed_in_the_store(tmp_path, toy):
    source = write_jsonl(tmp_path / "old.jsonl", [{"text": "ab"}])
    run(tmp_path, toy, [source])
    source.rename(tmp_path / "new.jsonl")
    run(tmp_path, toy, [tmp_path / "new.jsonl"])
    assert TokenStore.open(tmp_path / "store").table("inputs")["name"].to_pylist() == ["new.jsonl"]
    write_jsonl(tmp_path / "fresh" / "new.jsonl", [{"text": "ab"}])
    run(tmp_path / "fresh", toy, [tmp_path / "fresh" / "new.jsonl"])
    assert store_id(tmp_path / "store") == store_id(tmp_path / "fresh" / "store")


def test_order_of_inputs(tmp_path, toy):
    a, b = (write_jsonl(tmp_path / f"{name}.jsonl", [{"text": name * 3}]) for name in "ab")
    run(tmp_path, toy, [a, b])
    with pytest.raises(RunError) as caught:
        run(tmp_path, toy, [b, a])
    assert "another order" in str(caught.value)
    run(tmp_path, toy, [b, a], update=True)
    assert texts_of(tmp_path) == ["bbb", "aaa"]


def test_unfinished_work_gives_no_input_up(tmp_path, toy):
    good = write_jsonl(tmp_path / "good.jsonl", [{"text": "ab"}])
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{\n")
    strict = V1 | {"run": {"max_reject_ratio": 0.0, "min_rejects": 1}}
    with pytest.raises(RunError, match="too many"):
        run(tmp_path, toy, [good, bad], strict)
    with pytest.raises(RunError, match="other inputs") as caught:
        run(tmp_path, toy, [good], strict)
    assert "bad.jsonl" in str(caught.value)
    with pytest.raises(RunError, match="unfinished work of another configuration"):
        run(tmp_path, toy, [good, bad], V1 | {"preprocessing": {"min_chars": 1}})
    run(tmp_path, toy, [good], strict, overwrite=True)
    assert texts_of(tmp_path) == ["ab"]


def test_a_limited_run_goes_on_and_counts_what_it_used(tmp_path, toy):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "ab"}\n{\n' * 50)
    more = write_jsonl(tmp_path / "more.jsonl", [{"text": "cd"}])
    config = V1 | {"preprocessing": {"min_chars": 0, "max_items": 10}}
    with pytest.raises(RunError, match="too many"):
        run(tmp_path, toy, [bad, more], config | {"run": {"max_reject_ratio": 0.0, "min_rejects": 1}})
    run(tmp_path, toy, [bad, more], config | {"run": {"max_reject_ratio": 1.0}})
    store = TokenStore.open(tmp_path / "store")
    assert store.num_documents == 10
    read = [row["count"] for row in store.table("ledger").to_pylist() if row["what"] == "read"]
    assert store.table("inputs")["records"].to_pylist() == [read[0], 0]


def test_another_position_mode_alone_commits_again(tmp_path, toy):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "ab"}])
    run(tmp_path, toy, [source])
    run(tmp_path, toy, [source], V1 | {"output": {"position_ids_mode": "continuous"}})
    store = TokenStore.open(tmp_path / "store")
    assert store.manifest.position_ids_mode == "continuous"
    assert store.verify() == []


def test_one_plan_has_one_manifest_however_its_packing_is_spelled(tmp_path, toy):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "abcdefgh"}])
    ids = []
    for packing in ({"packing_strategy": "bfd_split"}, {"packing_strategy": "bfd", "over_long": "split"}):
        config = V1 | {"preprocessing": {"min_chars": 0, "max_packed_len": 3, **packing}}
        run(tmp_path, toy, [source], config, overwrite=True)
        ids.append(store_id(tmp_path / "store"))
    assert ids[0] == ids[1]


@pytest.mark.parametrize(("dtype", "fits"), [("uint8", False), ("int8", False), ("int16", True), ("int64", True)])
def test_ids_must_fit_their_type(tmp_path, toy, dtype, fits):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "a\u0300"}])
    config = V1 | {"output": {"dtype": {"sequence": dtype}}}
    if not fits:
        with pytest.raises(PipelineConfigError, match="do not fit"):
            run(tmp_path, toy, [source], config)
        assert not (tmp_path / "store").exists()
        return
    run(tmp_path, toy, [source], config)
    assert TokenStore.open(tmp_path / "store").tokens(0).flat.tolist() == [97, 0x300]


def test_the_store_is_no_input_of_itself(tmp_path, toy):
    write_jsonl(tmp_path / "in.jsonl", [{"text": "ab"}])
    run(tmp_path, toy, [tmp_path])
    with pytest.raises(AstraiError, match=r"inside the output|not supported"):
        run(tmp_path, toy, [tmp_path])


def test_an_input_given_twice_is_told(tmp_path, toy, caplog):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "ab"}])
    with caplog.at_level(logging.WARNING, "astrai"):
        run(tmp_path, toy, [source, source])
    assert "more than once" in caplog.text
    assert texts_of(tmp_path) == ["ab", "ab"]


def test_a_single_path_is_one_input(tmp_path, toy):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "ab"}])
    Pipeline(PipelineConfig.from_dict(V1), str(source), tmp_path / "store", toy).run()
    assert texts_of(tmp_path) == ["ab"]


def test_names_that_are_no_utf8(tmp_path, toy):
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    with open(folder + b"/x\xff.jsonl", "w") as file:
        file.write('{"text": "ab"}\n')
    run(tmp_path, toy, [tmp_path / "caf*" / "*.jsonl"])
    assert texts_of(tmp_path) == ["ab"]
    assert TokenStore.open(tmp_path / "store").verify() == []


def test_dry_run_says_what_the_run_would_refuse(tmp_path, toy):
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": "ab"}])
    write_config(tmp_path / "p.json", V1)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "mine.txt").touch()
    arguments = ["preprocess", source, "-o", tmp_path / "store", "-c", tmp_path / "p.json", "--tokenizer", toy]
    done = astrai(*arguments, "--dry-run")
    assert done.returncode == 1
    assert "mine.txt" in done.stderr
