"""Whole runs through the Python API: acceptance cases of the pipeline, what a run refuses, and what it goes on with."""

import json
import socket
import threading
import time

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from astrai_data import Pipeline, PipelineConfig, TokenStore
from astrai_data.errors import InputError, PipelineConfigError, RunError, StoreError, TokenizerError
from astrai_data.ledger import Ledger
from astrai_data.run.lease import Lease, boot_id

from .running import TEXT_CONFIG, digests, write_jsonl
from .toys import write_toy_tokenizer

V1 = {"input": {"sections": [{"field": "text", "action": "train"}]}, "preprocessing": {"min_chars": 0}}
CHAT = {
    "input": {"sections": [{"field": "messages", "action": "$role", "template": True}]},
    "mask": {"assistant": "train"},
}
USER_HI = {"role": "user", "content": "hi"}
OK = {"role": "assistant", "content": "ok"}


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    root = tmp_path_factory.mktemp("toys")
    return {kind: write_toy_tokenizer(root / kind, kind) for kind in ("C", "C+", "C0")}


def run(tmp_path, config: dict, records: list, tokenizer, **options) -> TokenStore:
    source = write_jsonl(tmp_path / "in.jsonl", records)
    Pipeline(PipelineConfig.from_dict(config), [source], tmp_path / "store", tokenizer).run(**options)
    return TokenStore.open(tmp_path / "store")


def texts_of(store: TokenStore) -> list[str]:
    return ["".join(map(chr, store.row(i).sequence.tolist())) for i in range(store.num_rows)]


def parts_of(store: TokenStore) -> list[tuple]:
    return [
        (shard.domain, "".join("".join(map(chr, row.tolist())) for row in store.tokens(number)))
        for number, shard in enumerate(store.shards)
    ]


def packing(strategy: str, capacity: int, **more) -> dict:
    return V1 | {"preprocessing": {"min_chars": 0, "packing_strategy": strategy, "max_packed_len": capacity, **more}}


@pytest.mark.parametrize(
    ("strategy", "rows", "positions"),
    [
        ("bfd", ["lmnopq", "cdefg", "hijkab"], [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4], [0, 1, 2, 3, 0, 1]]),
        (
            "bfd_split",
            ["lmnopq", "cdefg", "hijkab", "rst"],
            [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4], [0, 1, 2, 3, 0, 1], [0, 1, 2]],
        ),
    ],
)
def test_32_packing(tmp_path, toys, strategy, rows, positions):
    records = [{"text": text} for text in ("ab", "cdefg", "hijk", "lmnopqrst")]
    store = run(tmp_path, packing(strategy, 6), records, toys["C0"])
    assert texts_of(store) == rows
    assert [store.row(i).position_ids.tolist() for i in range(store.num_rows)] == positions


def test_33_keep_end_rebases_positions(tmp_path, toys):
    store = run(tmp_path, packing("simple", 3, truncation_mode="keep_end"), [{"text": "abcdef"}], toys["C0"])
    assert texts_of(store) == ["def"]
    assert store.row(0).position_ids.tolist() == [0, 1, 2]


def test_34_shards_close_by_domain(tmp_path, toys):
    pairs = [("abc", "A"), ("de", "B"), ("f", "A"), ("gg", 5), ("hh", "B"), ("i", "A")]
    config = V1 | {"output": {"max_tokens_per_shard": 5, "domain_key": "d"}}
    store = run(tmp_path, config, [{"text": text, "d": d} for text, d in pairs], toys["C0"])
    assert sorted(parts_of(store), key=str) == [("A", "abcfi"), ("B", "dehh"), (None, "gg")]


@pytest.mark.parametrize(("most", "kept"), [(1, ["abc"]), (2, ["abc", "def"]), (0, ["abc", "def", "ghi"])])
def test_35_max_items(tmp_path, toys, most, kept):
    records = [{"text": "abc"}, {"text": ""}, 5, {"text": "def"}, {"text": "ghi"}]
    config = V1 | {"preprocessing": {"min_chars": 0, "max_items": most}}
    assert texts_of(run(tmp_path, config, records, toys["C0"])) == kept


@pytest.mark.parametrize("domain", [None, "b"])
def test_35_max_items_counts_rejects_alike_in_any_batch(tmp_path, toys, domain):
    """Up to the record that would be one too many; another domain makes another batch."""
    write_jsonl(tmp_path / "a.jsonl", [{"text": "abc"}])
    write_jsonl(tmp_path / "b.jsonl", [5, {"text": "def"}, 6])
    inputs = [{"path": str(tmp_path / "a.jsonl")}, {"path": str(tmp_path / "b.jsonl"), "domain": domain}]
    config = V1 | {"preprocessing": {"min_chars": 0, "max_items": 1}, "data": {"inputs": inputs}}
    Pipeline(PipelineConfig.from_dict(config), [], tmp_path / "store", toys["C0"]).run()
    assert TokenStore.open(tmp_path / "store").table("inputs")["records"].to_pylist() == [1, 1]


def test_36_json_array_object_and_number(tmp_path, toys):
    (tmp_path / "a.json").write_text('[{"text":"abc"}, 5, {"text":"def"}]')
    (tmp_path / "b.json").write_text('{"text":"ghi"}')
    config = PipelineConfig.from_dict(V1)
    Pipeline(config, [tmp_path / "a.json", tmp_path / "b.json"], tmp_path / "s", toys["C0"]).run()
    store = TokenStore.open(tmp_path / "s")
    assert texts_of(store) == ["abc", "def", "ghi"]
    [reject] = store.rejects()
    assert (reject["source"], reject["position"], reject["reason"]) == ("a.json", 1, "not_an_object")
    (tmp_path / "c.json").write_text("7")
    with pytest.raises(RunError, match="nothing was kept"):
        Pipeline(config, [tmp_path / "c.json"], tmp_path / "t", toys["C0"]).run()
    assert not (tmp_path / "t" / "manifest.json").exists()


def test_37_rerun_with_less_data_is_refused_and_overwrite_replaces(tmp_path, toys):
    run(tmp_path, V1 | {"output": {"max_tokens_per_shard": 2}}, [{"text": t} for t in ("ab", "cd", "ef")], toys["C0"])
    config = V1 | {"output": {"max_tokens_per_shard": 2}}
    before = digests(tmp_path / "store")
    with pytest.raises(RunError, match="other inputs"):
        run(tmp_path, config, [{"text": "zz"}], toys["C0"])
    assert digests(tmp_path / "store") == before
    store = run(tmp_path, config, [{"text": "zz"}], toys["C0"], overwrite=True)
    assert texts_of(store) == ["zz"]


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_38_mask_of_fully_trained_records(tmp_path, toys, order):
    records = [{"messages": [OK]}, {"messages": [USER_HI, OK]}]
    store = run(tmp_path, CHAT, [records[i] for i in order], toys["C0"])
    masks = [[1] * 6, [0] * 6 + [1] * 6]
    assert [store.row(i).loss_mask.astype(int).tolist() for i in range(2)] == [masks[i] for i in order]


def test_43_domain_cannot_leave_the_store(tmp_path, toys):
    records = [{"text": "ab", "d": "../evil"}, {"text": "cd", "d": "/etc"}, {"text": "ef", "d": ""}]
    store = run(tmp_path, V1 | {"output": {"domain_key": "d"}}, records, toys["C0"])
    assert {shard.domain for shard in store.shards} == {"../evil", "/etc", ""}
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "store"}


def test_null_text_bad_lines_and_bad_utf8_are_counted(tmp_path, toys):
    source = tmp_path / "in.jsonl"
    lines = [b'{"text":"ab"}', b'{"text":null}', b'{"text":3}', b'{"text":"x', b"[1]", b'{"text":"\xff"}', b'{"t":1}']
    source.write_bytes(b"\n".join(lines))
    Pipeline(PipelineConfig.from_dict(V1), [source], tmp_path / "store", toys["C0"]).run()
    store = TokenStore.open(tmp_path / "store")
    ledger = Ledger.from_rows([list(row.values()) for row in store.table("ledger").to_pylist()])
    assert ledger.total("records", "read") == 7
    assert ledger.total("records", "kept") == 1
    assert ledger.total("records", "filtered", "missing_field") == 2
    found = [(r["position"], r["reason"]) for r in store.rejects()]
    offsets = np.cumsum([0, *(len(line) + 1 for line in lines)]).tolist()
    reasons = ["wrong_type", "invalid_json", "not_an_object", "invalid_utf8"]
    assert found == list(zip(offsets[2:6], reasons, strict=True))


def test_one_over_long_document_and_one_over_long_chat(tmp_path, toys):
    """cases/data.md 13: what is cut or dropped is the configuration's choice, and counted."""
    document = {"text": "x" * 100_000}
    store = run(tmp_path / "a", TEXT_CONFIG | {"preprocessing": {"max_packed_len": 2048}}, [document], toys["C0"])
    assert store.num_tokens == 100_001  # split; EOS included
    chat = {"messages": [USER_HI, {"role": "assistant", "content": "y" * 5000}]}
    config = CHAT | {"version": 2, "preprocessing": {"max_packed_len": 2048}}
    store = run(tmp_path / "b", config, [chat, {"messages": [USER_HI, OK]}], toys["C0"])
    ledger = Ledger.from_rows([list(row.values()) for row in store.table("ledger").to_pylist()])
    assert store.num_documents == 1
    assert ledger.total("records", "filtered", "over_long") == 1
    assert ledger.total("tokens", "dropped", "over_long") > 5000


def test_too_many_rejects_fail_and_another_limit_reuses_the_work(tmp_path, toys):
    source = tmp_path / "in.jsonl"
    source.write_text('{"text":"ab"}\n' + "broken\n" * 5)
    strict = PipelineConfig.from_dict(V1 | {"run": {"max_reject_ratio": 0.1, "min_rejects": 5}})
    with pytest.raises(RunError, match="too many records were rejected: 5 of 6") as caught:
        Pipeline(strict, [source], tmp_path / "store", toys["C0"]).run()
    assert "invalid_json" in str(caught.value)
    assert "in.jsonl at 14" in str(caught.value)
    [done] = (tmp_path / "store").glob("data/*/task.json")
    time_ns = done.stat().st_mtime_ns
    lax = PipelineConfig.from_dict(V1 | {"run": {"max_reject_ratio": 1.0}})
    Pipeline(lax, [source], tmp_path / "store", toys["C0"]).run()
    assert done.stat().st_mtime_ns == time_ns


def test_a_run_says_how_far_it_is(tmp_path, toys):
    heard = []
    run(tmp_path, V1, [{"text": "ab"}], toys["C0"], progress=heard.append)
    assert [(p.done_tasks, p.num_tasks) for p in heard] == [(0, 1), (1, 1)]
    assert heard[-1].done_bytes == heard[-1].num_bytes == (tmp_path / "in.jsonl").stat().st_size


class TestRefusals:
    def test_another_configuration(self, tmp_path, toys):
        run(tmp_path, packing("bfd", 6), [{"text": "ab"}], toys["C0"])
        before = digests(tmp_path / "store")
        with pytest.raises(RunError, match="another configuration") as caught:
            run(tmp_path, packing("bfd", 7), [{"text": "ab"}], toys["C0"])
        assert "preprocessing.max_packed_len: 6 -> 7" in str(caught.value)
        assert digests(tmp_path / "store") == before
        store = run(tmp_path, packing("bfd", 7), [{"text": "ab"}], toys["C0"], overwrite=True)
        assert store.manifest.packing["max_packed_len"] == 7
        assert store.verify() == []

    def test_another_template(self, tmp_path, toys):
        """cases/data.md 37: a change of the template alone is noticed; a change of the folder is not one."""
        run(tmp_path, CHAT, [{"messages": [USER_HI, OK]}], toys["C0"])
        other = write_toy_tokenizer(tmp_path / "other", "C0", template="{{ messages[0]['content'] }}")
        with pytest.raises(RunError, match="another configuration"):
            run(tmp_path, CHAT, [{"messages": [USER_HI, OK]}], other)

    def test_other_things_in_the_output(self, tmp_path, toys):
        (tmp_path / "store").mkdir()
        (tmp_path / "store" / "notes.txt").write_text("mine")
        with pytest.raises(RunError, match="holds other things") as caught:
            run(tmp_path, V1, [{"text": "ab"}], toys["C0"], overwrite=True)
        assert "notes.txt" in str(caught.value)
        assert [path.name for path in (tmp_path / "store").iterdir()] == ["notes.txt"]

    def test_output_is_a_file(self, tmp_path, toys):
        (tmp_path / "store").write_text("mine")
        with pytest.raises(RunError, match="is a file"):
            run(tmp_path, V1, [{"text": "ab"}], toys["C0"])

    def test_newer_format(self, tmp_path, toys):
        run(tmp_path, V1, [{"text": "ab"}], toys["C0"])
        path = tmp_path / "store" / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": "2.0"}))
        with pytest.raises(StoreError, match=r"does not read"):
            run(tmp_path, V1, [{"text": "ab"}], toys["C0"])

    def test_removed_input(self, tmp_path, toys):
        config = PipelineConfig.from_dict(V1)
        a, b = (write_jsonl(tmp_path / f"{name}.jsonl", [{"text": name}]) for name in "ab")
        Pipeline(config, [a, b], tmp_path / "store", toys["C0"]).run()
        with pytest.raises(RunError, match="other inputs") as caught:
            Pipeline(config, [b], tmp_path / "store", toys["C0"]).run(update=True)
        assert "a.jsonl" in str(caught.value)

    @pytest.mark.parametrize(
        ("config", "error", "says"),
        [
            ({}, PipelineConfigError, "sections"),
            (V1 | {"clean": [{"use": "x"}]}, PipelineConfigError, "not supported yet"),
        ],
    )
    def test_configurations_that_cannot_run(self, tmp_path, toys, config, error, says):
        with pytest.raises(error, match=says):
            run(tmp_path, config, [{"text": "ab"}], toys["C0"])
        assert not (tmp_path / "store").exists()

    def test_nothing_is_made_for_bad_arguments(self, tmp_path, toys):
        config = PipelineConfig.from_dict(V1)
        source = write_jsonl(tmp_path / "in.jsonl", [{"text": "ab"}])
        empty = tmp_path / "empty.jsonl"
        empty.touch()
        attempts = [
            (TokenizerError, lambda: Pipeline(config, [source], tmp_path / "s", tmp_path).run()),
            (PipelineConfigError, lambda: Pipeline(config, [source], tmp_path / "s").run()),
            (PipelineConfigError, lambda: Pipeline(config, [], tmp_path / "s", toys["C"]).run()),
            (InputError, lambda: Pipeline(config, [tmp_path / "none.jsonl"], tmp_path / "s", toys["C"]).run()),
            (RunError, lambda: Pipeline(config, [source], "s3://bucket/s", toys["C"])),
        ]
        for error, attempt in attempts:
            with pytest.raises(error):
                attempt()
        assert not (tmp_path / "s").exists()
        with pytest.raises(RunError, match="the inputs are empty"):
            Pipeline(config, [empty], tmp_path / "e", toys["C"]).run()


HASHES = {"executor": "local", "config_hash": "c", "plan_hash": "p"}


class TestLease:
    def test_a_live_lock_refuses_and_a_finished_one_is_gone(self, tmp_path, toys):
        with Lease(tmp_path / "store", **HASHES):
            with pytest.raises(RunError, match="another run is working") as caught:
                run(tmp_path, V1, [{"text": "ab"}], toys["C0"])
            assert str(psutil.Process().pid) in str(caught.value)
        run(tmp_path, V1, [{"text": "ab"}], toys["C0"])
        assert not (tmp_path / "store" / ".work" / "lock.json").exists()

    @pytest.mark.parametrize("changed", [{"pid": 2**22 - 1}, {"pid_start": 1.0}, {"host": "x", "renewed_unix_s": 0}])
    def test_a_dead_lock_is_broken_at_once(self, tmp_path, toys, changed):
        work = tmp_path / "store" / ".work"
        work.mkdir(parents=True)
        process = psutil.Process()
        lock = {"host": socket.gethostname(), "boot_id": boot_id(), "pid": process.pid, "nonce": "n"}
        lock |= {"pid_start": process.create_time(), "renewed_unix_s": time.time()}
        (work / "lock.json").write_text(json.dumps(lock | changed))
        run(tmp_path, V1, [{"text": "ab"}], toys["C0"])

    def test_a_lock_of_another_host_is_alive_while_it_is_renewed(self, tmp_path, toys):
        work = tmp_path / "store" / ".work"
        work.mkdir(parents=True)
        (work / "lock.json").write_text(json.dumps({"host": "x", "pid": 1, "renewed_unix_s": time.time()}))
        with pytest.raises(RunError, match="another run"):
            run(tmp_path, V1, [{"text": "ab"}], toys["C0"])

    def test_one_of_many_that_start_together_wins(self, tmp_path):
        work = tmp_path / "store" / ".work"
        work.mkdir(parents=True)
        (work / "lock.json").write_text(json.dumps({"host": socket.gethostname(), "boot_id": boot_id(), "pid": -5}))
        won, lost, barrier, go = [], [], threading.Barrier(8), threading.Event()

        def attempt():
            barrier.wait()
            try:
                with Lease(tmp_path / "store", **HASHES):
                    won.append(1)
                    go.wait(5)
            except RunError:
                lost.append(1)
                if len(lost) == 7:
                    go.set()

        threads = [threading.Thread(target=attempt) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(won), len(lost)) == (1, 7)


LINES = st.one_of(
    st.fixed_dictionaries({"text": st.one_of(st.none(), st.integers(), st.text(max_size=30))}).map(json.dumps),
    st.sampled_from(["", "{", "[]", "3", '{"text": "\\ud800"}', '{"other": 1}']),
)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(LINES, min_size=1, max_size=20),
    strategy=st.sampled_from(["simple", "bfd", "bfd_split", "concat"]),
    capacity=st.integers(2, 9),
)
def test_balances_and_proof_for_any_lines(tmp_path_factory, toys, lines, strategy, capacity):
    root = tmp_path_factory.mktemp("any")
    (root / "in.jsonl").write_text("\n".join([*lines, '{"text": "certain"}']))
    config = packing(strategy, capacity) | {"run": {"max_reject_ratio": 1.0, "validation_fraction": 0.2}}
    manifest = Pipeline(PipelineConfig.from_dict(config), [root / "in.jsonl"], root / "s", toys["C0"]).run()
    store = TokenStore.open(root / "s", split=None)
    assert store.verify() == []
    ledger = Ledger.from_rows([list(row.values()) for row in store.table("ledger").to_pylist()])
    ledger.check()
    assert ledger.total("records", "read") == sum(bool(line.strip()) for line in lines) + 1
    kept = ledger.total("tokens", "trained") + ledger.total("tokens", "masked")
    assert kept == manifest.totals["num_tokens"] == store.num_tokens
    for index in range(store.num_rows):
        row = store.row(index)
        assert len(row.sequence) == len(row.loss_mask) == len(row.position_ids) == row.segment_lengths.sum()
        assert len(row.sequence) <= capacity
