"""Stores that are not there, unfinished, of the future or damaged; their exports; and what is asked of them."""

import hashlib
import json
import pickle
import shutil

from astrai_data import TokenStore
from astrai_data.errors import StoreError
from astrai_data.store import read_task
from astrai_data.store.reference import load_bin
from astrai_data.store.rollup import read_ledger
from astrai_data.store.token_store import StoreRangeError

from .place import CONFIG, Place
from .row import Row


def inspect(name: str, prepare=lambda place: None):
    """The command on a folder of this name."""

    def fail(place: Place) -> None:
        prepare(place)
        place.astrai("inspect", place / name)

    return fail


def manifest(**changes):
    """A store whose manifest says something else."""

    def fail(place: Place) -> None:
        place.edit(place.store / "manifest.json", **changes)
        place.astrai("inspect", place.store)

    return fail


def spoilt(pattern: str, content: bytes | None, use):
    """A store of which one file holds something else; None: it is gone."""

    def fail(place: Place) -> None:
        path = next(place.store.glob(pattern))
        path.unlink() if content is None else path.write_bytes(content)
        use(place)

    return fail


def read_all(place: Place) -> None:
    place.open().rows(list(range(place.open().num_rows)))


def exported(*options: object, dest: str = "export"):
    def fail(place: Place) -> None:
        place.astrai("export", place.store, place / dest, *options)

    return fail


def damaged_manifest(place: Place) -> None:
    """Made by a run, spoilt by hand: so that the run can be given again."""
    if not (place / "store").exists():
        place.pipeline(out="store")
        place.write("store/manifest.json", '{"format": ')
    place.astrai("inspect", place / "store")


def mend_by_same_command(place: Place) -> None:
    assert "`astrai preprocess` command" in place.told("try")
    assert "--overwrite" in place.told("try")
    place.pipeline(out="store", overwrite=True)


def damaged_task(place: Place) -> None:
    """The record of a task of work that has a manifest to come."""
    if not (place / "out").exists():
        place.pipeline()
        place.file("out/data/*/task.json").write_text("{")
        (place / "out" / "manifest.json").unlink()
    read_task(place / "out", place.file("out/data/*").name)


def mend_task(place: Place) -> None:
    assert place.told("try").startswith("delete the task's folder and run the same `astrai preprocess` command again")
    shutil.rmtree(place.file("out/data/*"))
    place.pipeline()


def small_dtype(place: Place) -> None:
    """Positions that need more than the configuration gives them."""
    place.pipeline(CONFIG | {"output": {"dtype": {"position_ids": "bool"}}})
    place.astrai("export", place / "out", place / "export")


def replaced(place: Place) -> None:
    place.pipeline(out="store")
    opened = pickle.dumps(TokenStore.open(place / "store"))
    place.pipeline(CONFIG | {"preprocessing": {"max_packed_len": 32}}, out="store", overwrite=True)
    pickle.loads(opened)


def other_table(place: Place) -> None:
    tables = place.store / "meta"
    path, other = next(tables.glob("*/tables/rows.parquet")), next(tables.glob("*/tables/shards.parquet"))
    shutil.copy(other, path)
    place.open().table("rows")


def shard(meta: object, size: int | None = None):
    def fail(place: Place) -> None:
        place.write("shard/meta.json", json.dumps(meta))
        if size is not None:
            place.write("shard/sequence.bin", bytes(size))
        load_bin(place / "shard")

    return fail


def task_key(place: Place) -> str:
    return place.file("store/data/*").name


def lost_rejects(place: Place) -> None:
    """A store with a reject, whose file is gone."""
    path = place.write("in.jsonl", '{"text": "good"}\n{bad\n')
    place.pipeline(inputs=[path])
    place.file("out/rejects/*").unlink()
    list(TokenStore.open(place / "out", None).rejects())


def unusable_tokenizer(place: Place) -> None:
    """What the manifest names is what is there, and is no tokenizer."""
    path = next(place.store.glob(TOKENIZER))
    path.write_bytes(b"{}")
    entry = place.open().manifest.tokenizer
    files = entry["files"] | {"tokenizer.json": hashlib.sha256(b"{}").hexdigest()}
    place.edit(place.store / "manifest.json", tokenizer=entry | {"files": files})
    place.open().tokenizer()


def unfinished(place: Place) -> None:
    (place / "new" / "data").mkdir(parents=True)


def asked(use):
    return lambda place: use(place.open())


def row(name, fail, *says, kind=StoreError, mend=None) -> Row:
    return Row(name, fail, kind, says, mend=mend)


SHAPE = {"sequence": {"shape": [4], "dtype": "int32"}}
TABLE, TOKENIZER = "meta/*/tables/inputs.parquet", "meta/*/tokenizer/tokenizer.json"

ROWS = [
    row("nothing there", inspect("no"), "/no", "got: nothing", "check the path"),
    row("a file", inspect("a", lambda p: p.write("a", "")), "got: a file", "name the folder of the store"),
    row("a folder of other things", inspect("in", lambda p: p.write("in/a.txt", "")), "got: a.txt", "given as -o"),
    row("an unfinished store", inspect("new", unfinished), "/new", "it continues where it stopped"),
    row("a URL", lambda p: TokenStore.open("s3://bucket/store"), "s3://bucket/store", "'s3'", "copy the store"),
    row("a manifest that is a folder", inspect("s", lambda p: (p / "s/manifest.json").mkdir(parents=True)), "Is a dir"),
    row("a damaged manifest", damaged_manifest, "manifest.json", "unexpected end", mend=mend_by_same_command),
    row("no manifest of ours", manifest(format="other"), "no token store's manifest", "restore manifest.json"),
    row("a manifest without a key", manifest(totals=None), "KeyError: 'totals'", "restore manifest.json"),
    row("a newer format", manifest(format_version="2.0"), "format 2.0", "format 1.x", "a newer one"),
    row("a kind of the future", manifest(kind="ragged"), "kind 'ragged'", "kind packed", "a newer AstrAI"),
    row("a part that is gone", spoilt("data/*/part-000.arrow", None, read_all), "part-000.arrow", "No such file"),
    row("a part cut short", spoilt("data/*/part-000.arrow", b"ARROW", read_all), "got: 5 bytes", "wanted: at least 5"),
    row("segments", spoilt("data/*/part-000.segments.arrow", b"ARROW", read_all), "part-000.segments.arrow", "columns"),
    row("a damaged table", spoilt(TABLE, b"PAR1", lambda p: p.open().table("inputs")), "inputs.parquet", "copy"),
    row("another table", other_table, "rows.parquet", "got: 2 rows", "--verify"),
    row("no rejects", lost_rejects, "rejects/", "No such file"),
    row("the tokenizer is gone", spoilt(TOKENIZER, None, lambda p: p.open().tokenizer()), "tokenizer.json", "No such"),
    row("another tokenizer", spoilt(TOKENIZER, b"{}", lambda p: p.open().tokenizer()), "SHA-256 44136fa", "copy"),
    row("an unusable tokenizer", unusable_tokenizer, "got: tokenizer.json has no model", "/tokenizer"),
    row("the pipeline's copy", spoilt("meta/*/pipeline.json", b"{", exported()), "pipeline.json", "unexpected end"),
    row("a ledger", spoilt("data/*/ledger.json", b"{", lambda p: read_ledger(p.store, task_key(p))), "ledger.json"),
    row(
        "an unfinished task",
        spoilt("data/*/task.json", None, lambda p: read_task(p.store, task_key(p))),
        "no task.json",
    ),
    row("a damaged task", damaged_task, "task.json", "delete the task's folder", mend=mend_task),
    row("a store that was replaced", replaced, "store id ", "open it anew"),
    row("no such split", lambda p: p.open("test"), "got: test", "train or validation", "split=None"),
    row("no such row", asked(lambda it: it.row(999)), "got: 999", "0 to ", kind=StoreRangeError),
    row("no such rows", asked(lambda it: it.rows([0, -1])), "got: -1", "split=None", kind=StoreRangeError),
    row(
        "no such tokens", asked(lambda it: it.slice(5, 10**9)), "(5, 1000000000)", "begin <= end", kind=StoreRangeError
    ),
    row("no such table", asked(lambda it: it.table("row")), "got: row", "rows, shards", "methods of their own"),
    row("an export format", exported("--to", "json"), "got: json", "mean 'jsonl'"),
    row("a compressed export", exported(dest="a.jsonl.gz"), "the name of a gzip file", "a.jsonl, and compress that"),
    row("an export into the store", exported(dest="store/export"), "/store/export", "another destination"),
    row("an export over something", lambda p: p.write("export/a", "") and exported()(p), "got: a folder", "remove"),
    row("positions that do not fit", small_dtype, "output.dtype.position_ids", "wanted: bool", "a wider output.dtype"),
    row("no shard", lambda p: load_bin(p.root), "meta.json", "No such file", "astrai export"),
    row("a shard of nobody's dtype", shard({"a": {"shape": [1], "dtype": "complex64"}}), "an unknown dtype", "shard_N"),
    row("a shard's file", shard(SHAPE, 3), "sequence.bin", "got: 3 bytes", "16 bytes"),
]
