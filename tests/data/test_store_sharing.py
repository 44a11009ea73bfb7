import dataclasses
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from astrai_data.errors import StoreError
from astrai_data.store import TokenStore
from astrai_data.store.digest import table_digest
from astrai_data.store.tables import write_table
from tests.data.small_stores import write_small_store


@pytest.fixture(scope="module", params=["arrow", "bin"])
def sample(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("read") / "store"
    return root, write_small_store(root, storage_format=request.param)


# Defects seen in the field (cases/data.md, 40): readers reopen by path, under spawn and fork, and after a kill.


def first_tokens(store: TokenStore) -> list[int]:
    return store.row(0).sequence.tolist() + store.documents()["position"].to_pylist()


def test_a_store_pickles_as_its_address(sample):
    store = TokenStore.open(sample[0], "validation")
    store.slice(0, store.num_tokens)
    data = pickle.dumps(store)
    assert len(data) < 400 + len(str(sample[0]))
    copy = pickle.loads(data)
    assert (copy.split, first_tokens(copy)) == ("validation", first_tokens(store))


def test_a_replaced_store_is_not_mistaken_for_the_old_one(tmp_path):
    write_small_store(tmp_path / "store")
    data = pickle.dumps(TokenStore.open(tmp_path / "store"))
    write_small_store(tmp_path / "store", storage_format="bin")
    with pytest.raises(StoreError, match="replaced"):
        pickle.loads(data)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_readers_live_under_fork_and_spawn(sample, method):
    store = TokenStore.open(sample[0])
    expected = first_tokens(store)  # everything is open before the fork
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map_async(first_tokens, [store] * 4).get(timeout=60) == [expected] * 4
    assert first_tokens(store) == expected


def test_a_killed_reader_leaves_nothing_behind(sample):
    script = (
        "from astrai_data.store import TokenStore\n"
        f"store = TokenStore.open({str(sample[0])!r}, None)\n"
        "print('reading', flush=True)\n"
        "while True: store.rows(list(range(store.num_rows)))"
    )
    before = sorted(path for path in sample[0].rglob("*"))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as reader:
        assert reader.stdout.readline() == b"reading\n"
        time.sleep(0.1)
        reader.send_signal(signal.SIGKILL)
    assert sorted(path for path in sample[0].rglob("*")) == before
    assert TokenStore.open(sample[0], None).verify() == []


def test_few_parts_stay_open_and_no_descriptors(sample):
    store = TokenStore.open(sample[0], None, max_open_parts=2)
    opened = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        for shard in range(len(store.shards)):
            store.tokens(shard)
    assert store._part.cache_info().currsize == 2
    assert len(os.listdir("/proc/self/fd")) == opened


def test_threads_share_a_store(sample):
    store = TokenStore.open(sample[0], None, max_open_parts=1)
    order = np.random.default_rng(0).integers(0, store.num_rows, 400).tolist()
    expected = {i: store.row(i).sequence.tolist() for i in range(store.num_rows)}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: store.row(i).sequence.tolist(), order))
    assert found == [expected[i] for i in order]


def test_a_moved_store_is_the_same_store(tmp_path):
    write_small_store(tmp_path / "store")
    store_id = TokenStore.open(tmp_path / "store").store_id
    shutil.move(tmp_path / "store", tmp_path / "elsewhere")
    moved = TokenStore.open(tmp_path / "elsewhere")
    assert moved.store_id == store_id
    assert moved.verify() == []
    assert TokenStore.open(f"file://{tmp_path / 'elsewhere'}").store_id == store_id


def test_ten_thousand_shards_open_in_a_second(tmp_path):
    """The shards table of 10,000 shards of 2^24 tokens: 33 checksums each."""
    write_small_store(tmp_path / "store")
    store = TokenStore.open(tmp_path / "store", None)
    shards = store.table("shards").slice(0, 1)
    buffers = [[b | {"block_xxh3": list(range(17))} for b in shards["buffers"][0].as_py()]]
    field = shards.schema.field("buffers")
    shards = shards.set_column(shards.schema.get_field_index("buffers"), field, pa.array(buffers, field.type))
    many = pa.concat_tables([shards] * 10_000).combine_chunks()
    entry = store.manifest.tables["shards"]
    write_table(store.root / entry["path"], many)
    tables = store.manifest.tables | {"shards": entry | {"num_rows": 10_000, "sha256": table_digest(many)}}
    dataclasses.replace(store.manifest, tables=tables).write(store.root)
    begin = time.perf_counter()
    opened = TokenStore.open(store.root, None)
    assert time.perf_counter() - begin < 1
    assert len(opened.shards) == 10_000
    assert opened.tokens(9_999).lengths.tolist() == store.tokens(0).lengths.tolist()
