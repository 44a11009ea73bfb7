"""Runs: what lies in the output folder, what came out, the plan, locks, and what the system refuses."""

import json
import os
import socket

import numpy as np

from astrai_data import Pipeline, PipelineConfig
from astrai_data.errors import PipelineConfigError, RunError, StoreError
from astrai_data.ledger import Ledger
from astrai_data.pack import plan
from astrai_data.run.lease import Lease
from astrai_data.run.processes import boot_id, process_start

from .place import CHAT, CONFIG, Place
from .row import Row


def preprocess(place: Place, inputs: list, config: dict = CONFIG, out: str = "out") -> None:
    """The command over these inputs."""
    pipeline = place.once("pipeline.json", config)
    options = ["-o", place / out, "-c", pipeline, "--tokenizer", place.tokenizer, "--quiet"]
    place.astrai("preprocess", *inputs, *options)


def again(changed: dict = CONFIG, inputs: tuple[str, ...] = ("texts.jsonl",)):
    """A store of `texts.jsonl`; then a run into the same folder."""

    def fail(place: Place) -> None:
        if not (place / "out").exists():
            place.pipeline()
        place.once("more.jsonl", {"text": "more"})
        preprocess(place, [place / name for name in inputs], changed)

    return fail


def into(prepare):
    """A run into a folder `out` that `prepare` made."""

    def fail(place: Place) -> None:
        if not (place / "out").exists():
            prepare(place)
        preprocess(place, [place.texts])

    return fail


def records(*lines: str, **keys):
    """A run over JSON lines."""

    def fail(place: Place) -> None:
        place.once("in.jsonl", "".join(f"{line}\n" for line in lines))
        preprocess(place, [place / "in.jsonl"], CONFIG | keys)

    return fail


def mend_ratio(place: Place) -> None:
    assert "raise run.max_reject_ratio" in place.told("try")
    place.edit(place / "pipeline.json", run={"max_reject_ratio": 0.6})


def mend_field(place: Place) -> None:
    """The message says that the pipeline reads 'text', and to look whether the records have it."""
    assert "reads 'text'" in place.told("try")
    path = place / "in.jsonl"
    path.write_text(path.read_text().replace('"body"', '"text"'))


def mend_roles(place: Place) -> None:
    """Write what the message proposes; the folder of the run that kept nothing may be used again."""
    proposed = place.told("try").partition("such as ")[2].partition(";")[0]
    place.edit(place / "pipeline.json", **json.loads(f"{{{proposed}}}"))


def lock(place: Place, **changes) -> None:
    """The lock of a run that lives: this process."""
    mine = {"host": socket.gethostname(), "boot_id": boot_id(), "pid": os.getpid()}
    lives = mine | {"pid_start": process_start(os.getpid()), "nonce": "other", "renewed_unix_s": 0}
    place.write("out/.work/lock.json", lives | changes)


def taken_over(place: Place) -> None:
    with Lease(place / "out", executor="local", config_hash="", plan_hash="") as lease:
        lock(place)
        lease.check()


def taken_away(place: Place) -> None:
    with Lease(place / "out", executor="local", config_hash="", plan_hash="") as lease:
        (place / "out/.work/lock.json").unlink()
        lease.check()


def not_utf8(place: Place) -> None:
    Pipeline(PipelineConfig.from_dict(CONFIG), [place.texts], "\udcff")


def without_tokenizer(place: Place) -> None:
    Pipeline(PipelineConfig.from_dict(CONFIG), [place.texts], place / "out").run()


def small_ids(place: Place) -> None:
    place.pipeline(CONFIG | {"output": {"dtype": {"sequence": "int8"}}})


def below_file(place: Place) -> None:
    config = PipelineConfig.from_dict(CONFIG)
    Pipeline(config, [place.texts], place.texts / "new", place.tokenizer).run()


def unbalanced(place: Place) -> None:
    ledger = Ledger()
    ledger.add("records", "web", "read", 3)
    ledger.check("task 5")


def into_a_file(place: Place) -> None:
    """Files of the store cannot be written: their folder is a file."""
    place.write("out/data", "")
    place.pipeline()


def row(name, fail, *says, kind=RunError, without=None, mend=None) -> Row:
    return Row(name, fail, kind, says, without or {}, mend)


def overwrite(place: Place) -> None:
    assert "--overwrite" in place.told("try")
    place.options.append("--overwrite")


OTHER = CONFIG | {"preprocessing": {"max_packed_len": 32}}
STRANGE = '{"messages": [{"role": "human", "content": "Hi."}, {"role": "gpt", "content": "Hello."}]}'
LENGTHS = np.array([3, 9])

ROWS = [
    row("another configuration", again(OTHER), "max_packed_len: 64 -> 32", "--overwrite", mend=overwrite),
    row("more inputs", again(inputs=("texts.jsonl", "more.jsonl")), "new: more.jsonl", "with --update"),
    row("other inputs", again(inputs=("more.jsonl",)), "without texts.jsonl", "the full list of inputs"),
    row("a file as output", into(lambda p: p.write("out", "")), "/out", "got: a file", "choose another -o"),
    row("things of others", into(lambda p: p.write("out/notes.txt", "")), "notes.txt", "choose another -o"),
    row("a run at work", into(lock), "lock.json", f"process {os.getpid()}", "wait for it or stop it"),
    row("a run that was overtaken", taken_over, "lock.json", "the lock of this run", "finished work is kept"),
    row("a run whose folder is gone", taken_away, "lock.json", "no lock any more", "where the folder is now"),
    row("an output that is not UTF-8", not_utf8, "--output-dir", "\\udcff", "choose another folder"),
    row(
        "records that are rejected",
        records(*['{"text": "good"}'] * 9, *["{bad"] * 11, run={"max_reject_ratio": 0.1, "min_rejects": 2}),
        "11 of 20",
        "11 rejected invalid_json, e.g. in.jsonl at ",
        "at most 10.00% (run.max_reject_ratio)",
        mend=mend_ratio,
    ),
    row("nothing was kept", records('{"body": "a text"}'), "1 filtered missing_field", mend=mend_field),
    row("roles of others", records(STRANGE, **CHAT), "'human', 'gpt'", '"mask": {"gpt": "train"}', mend=mend_roles),
    row("no conversation", records('{"messages": 5}', **CHAT), "not_a_conversation", "astrai mask"),
    row("no records", records(), "no records at all", "at least one document"),
    row("no tokenizer", without_tokenizer, "got: neither", "--tokenizer DIR", kind=PipelineConfigError),
    row("no input", lambda p: p.pipeline(inputs=[]), "no input", "INPUT...", kind=PipelineConfigError),
    row("ids too large for the dtype", small_ids, "int8 (up to 127)", "uint16", kind=PipelineConfigError),
    row("a URL as output", lambda p: Pipeline(PipelineConfig(), [], "s3://b/store"), "s3://b/store", "copy the"),
    row("inputs in the output", lambda p: p.pipeline(inputs=[p.write("out/data/a.jsonl", "{}")]), "a.jsonl", "beside"),
    row("an output that cannot be", below_file, "texts.jsonl/new", "Not a directory", "the cause is mended"),
    row("a file that cannot be written", into_a_file, "/out/data", "Not a directory", kind=StoreError),
    row("a ledger that does not close", unbalanced, "'web'", "task 5", "= 3, ", "please report it"),
    row("a strategy", lambda p: plan("bdf", LENGTHS, 8, split=True), "'bfd'", kind=PipelineConfigError),
    row("no room", lambda p: plan("bfd", LENGTHS, 0, split=True), "got: 0", "max_packed_len", kind=PipelineConfigError),
    row("too long for a row", lambda p: plan("bfd", LENGTHS, 8, split=False), "document 1", "9 tokens", "at most 8"),
]
