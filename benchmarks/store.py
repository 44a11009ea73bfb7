"""What a token store costs beside the bare bytes: writing a part, opening many shards, verifying.

Run: python benchmarks/store.py [FOLDER]. Prints GB/s of token bytes for one part of 2^24 uint16 tokens written by
TaskWriter (arrow, bin) and by a plain write of the same bytes, in turn, best of five; then the time to open a store
with 10,000 shards of 2^24 tokens (a real manifest and shards table, no token files), and of `verify_store`.
"""

import dataclasses
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from astrai_data.ledger import Ledger
from astrai_data.pack import Segments
from astrai_data.ragged import Ragged
from astrai_data.store import INPUTS_SCHEMA, MaskRule, TaskWriter, TokenStore, assemble, config_hash, plan_hash
from astrai_data.store.digest import table_digest
from astrai_data.store.manifest import Manifest
from astrai_data.store.tables import DOCUMENTS_SCHEMA, write_table
from astrai_data.store.tokenizer_copy import read_tokenizer_files

NUM_TOKENS, ROW_LENGTH, NUM_SHARDS = 1 << 24, 2048, 10_000


def make_part() -> tuple[Ragged, Segments]:
    tokens = np.random.default_rng(0).integers(0, 50_000, NUM_TOKENS, np.uint16)
    rows = Ragged.from_lengths(tokens, np.full(NUM_TOKENS // ROW_LENGTH, ROW_LENGTH))
    count = NUM_TOKENS // (ROW_LENGTH // 4)  # four segments a row
    lengths = np.full(count, ROW_LENGTH // 4, np.int32)
    runs = np.arange(count + 1)
    document = np.arange(count, dtype=np.int32)
    return rows, Segments(
        row=np.repeat(np.arange(len(rows), dtype=np.int32), 4),
        length=lengths,
        document=document,
        token_start=np.zeros(count, np.int64),
        flags=np.zeros(count, np.uint8),
        mask_lengths=Ragged(lengths, runs),
        mask_rules=Ragged(np.zeros(count, np.uint16), runs),
    )


def write_rates(folder: Path, rows: Ragged, segments: Segments) -> None:
    def part(storage_format):
        TaskWriter(folder, "a" * 32, storage_format=storage_format).write_part("train", None, rows, segments)

    def plain():
        (folder / "plain").write_bytes(rows.values)

    ways = {"plain write": plain, "arrow part": lambda: part("arrow"), "bin part": lambda: part("bin")}
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(5):
        for name, way in ways.items():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            begin = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - begin)
    for name, seconds in best.items():
        print(f"{name:12} {rows.values.nbytes / seconds / 1e9:6.2f} GB/s of tokens  {seconds * 1e3:6.1f} ms")


def make_store(root: Path, rows: Ragged, segments: Segments) -> Manifest:
    writer = TaskWriter(root, "a" * 32, storage_format="arrow")
    writer.write_part("train", None, rows, segments)
    n, ledger = len(segments), Ledger()
    trained = segments.num_trained(np.array([True]))
    ledger.add("records", None, "read", n)
    ledger.add("records", None, "kept", n)
    ledger.add("tokens", None, "from_text", NUM_TOKENS)
    ledger.add("tokens", None, "trained", int(trained.sum()))
    ledger.add("tokens", None, "masked", n, "segment_start")
    zeros, hashes = np.zeros(n, np.int64), pa.array([bytes(16)] * n, pa.binary(16))
    columns = [zeros.astype(np.int32), zeros, hashes, zeros, segments.length.astype(np.int64), trained]
    columns += [pa.nulls(n, pa.string()), pa.array(["train"] * n)]
    writer.finish(pa.table(columns, schema=DOCUMENTS_SCHEMA), ledger, [], [])
    tokenizer, config = root.parent / "tokenizer", {"output": {}}
    tokenizer.mkdir()
    vocabulary = "{" + ",".join(f'"{number}":{number}' for number in range(50_000)) + "}"
    model = f'{{"type":"WordLevel","vocab":{vocabulary},"unk_token":"0"}}'
    (tokenizer / "tokenizer.json").write_text(f'{{"version":"1.0","model":{model},"added_tokens":[]}}')
    hashed = config_hash(config, "", "")
    return assemble(
        root,
        task_keys=["a" * 32],
        task_inputs=[[0]],
        inputs=pa.table([["text"], [0], ["jsonl"], [n]], schema=INPUTS_SCHEMA),
        columns={"sequence": "uint16"},
        config=config,
        config_hash=hashed,
        plan_hash=plan_hash(hashed, ["a" * 32]),
        tokenizer_files=read_tokenizer_files(tokenizer),
        ids_sha256="",
        template_sha256="",
        mask_rules=[MaskRule("text", True)],
        packing={"strategy": "bfd", "max_packed_len": ROW_LENGTH},
        has_loss_mask=False,
        run={},
    )


def widen(root: Path, manifest: Manifest) -> None:
    """Give the store's shards table 10,000 shards, all of the same files."""
    table = TokenStore.open(root, None).table("shards")
    shards = pa.concat_tables([table] * NUM_SHARDS).combine_chunks()
    begins = pa.array(np.arange(NUM_SHARDS) * NUM_TOKENS)
    shards = shards.set_column(shards.schema.get_field_index("token_begin"), shards.schema.field("token_begin"), begins)
    entry = manifest.tables["shards"]
    write_table(root / entry["path"], shards)
    entry = entry | {"num_rows": NUM_SHARDS, "sha256": table_digest(shards)}
    dataclasses.replace(manifest, tables=manifest.tables | {"shards": entry}).write(root)


def main() -> None:
    folder = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None))
    rows, segments = make_part()
    try:
        write_rates(folder / "rates", rows, segments)
        root = folder / "store"
        manifest = make_store(root, rows, segments)
        begin = time.perf_counter()
        findings = TokenStore.open(root).verify()
        seconds = time.perf_counter() - begin
        print(
            f"verify       {seconds * 1e3:6.1f} ms for a part and a tokenizer of 50,000 ids: {len(findings)} findings"
        )
        widen(root, manifest)
        begin = time.perf_counter()
        store = TokenStore.open(root)
        seconds = time.perf_counter() - begin
        print(f"open {len(store.shards):,} shards in {seconds:.2f} s")
        store.rows(np.arange(1000))
        begin = time.perf_counter()
        for index in range(1000):
            store.row(index)
        print(f"one row of {ROW_LENGTH} tokens in {(time.perf_counter() - begin) * 1e3:.0f} us, warm")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
