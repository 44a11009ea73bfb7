import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.errors import StoreError
from astrai_data.store import StoreRangeError, TokenStore, read_tokenizer_files
from tests.data.small_stores import CAPACITY, RULES, Document, commit, write_small_store, write_task
from tests.data.toys import write_bpe_tokenizer


@pytest.fixture(scope="module", params=["arrow", "bin"])
def sample(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("read") / "store"
    return root, write_small_store(root, storage_format=request.param)


def stored_documents(store: TokenStore) -> dict[int, tuple[list[int], list[int]]]:
    """Document id -> (ids, mask), put together again from the rows and segments that hold it."""
    pieces: dict[int, list] = {}
    for shard, info in enumerate(store.shards):
        tokens, segments = store.tokens(shard), store.segments(shard)
        at = 0
        for i, length in enumerate(segments.length.tolist()):
            rules = zip(segments.mask_lengths[i].tolist(), segments.mask_rules[i].tolist(), strict=True)
            mask = [int(RULES[rule].trained) for n, rule in rules for _ in range(n)]
            piece = (int(segments.token_start[i]), tokens.values[at : at + length].tolist(), mask)
            pieces.setdefault(info.document_begin + int(segments.document[i]), []).append(piece)
            at += length
    in_order = {number: sorted(parts) for number, parts in pieces.items()}
    return {number: tuple(joined([part[i] for part in parts]) for i in (1, 2)) for number, parts in in_order.items()}


def joined(lists: list[list[int]]) -> list[int]:
    return [item for items in lists for item in items]


def test_every_document_is_there_whole(sample):
    root, documents = sample
    store = TokenStore.open(root, None)
    assert stored_documents(store) == {i: (d.ids, d.mask) for i, d in enumerate(documents)}
    assert store.num_documents == len(documents)
    assert store.num_tokens == sum(len(d.ids) for d in documents)
    told = store.documents()
    assert told["position"].to_pylist() == [d.position for d in documents]
    assert told["domain"].to_pylist() == [d.domain for d in documents]
    assert told["meta"].to_pylist() == [d.meta for d in documents]
    names = store.table("inputs")["name"].to_pylist()
    assert [names[i] for i in told["input"].to_pylist()] == ["text.jsonl"] * 4 + [
        "more.jsonl",
        "more.jsonl",
        "more.jsonl",
    ]


def test_splits_count_their_own_rows(sample):
    root, documents = sample
    whole, train, held = (TokenStore.open(root, split) for split in (None, "train", "validation"))
    assert TokenStore.open(root).split == "train"
    for name in ("num_rows", "num_segments", "num_documents", "num_tokens", "num_trained"):
        assert getattr(whole, name) == getattr(train, name) + getattr(held, name)
    assert held.num_documents == sum(d.split == "validation" for d in documents)
    assert sorted(held.row(i).sequence.tolist() for i in range(held.num_rows)) == sorted(
        d.ids for d in documents if d.split == "validation"
    )
    assert {info.split for info in held.shards} == {"validation"}
    assert whole.num_trained == sum(sum(d.mask[1:]) for d in documents) - (3 - 1)  # LONG begins two rows anew


def test_a_row_has_its_derived_columns(sample):
    store = TokenStore.open(sample[0], None)
    for index in range(store.num_rows):
        row = store.row(index)
        lengths = row.segment_lengths.tolist()
        assert len(row.sequence) == len(row.loss_mask) == len(row.position_ids) == sum(lengths) <= CAPACITY
        assert row.position_ids.tolist() == [i for length in lengths for i in range(length)]
        assert (row.sequence.dtype, row.loss_mask.dtype) == (np.uint16, np.bool_)
        assert (row.segment_lengths.dtype, row.position_ids.dtype) == (np.int32, np.int32)
    with pytest.raises(AttributeError, match="sequence"):
        _ = store.row(0).sequnce


def rows_equal(one, other) -> bool:
    names = ("sequence", "loss_mask", "segment_lengths", "position_ids")
    return all(
        getattr(one, n).dtype == getattr(other, n).dtype and np.array_equal(getattr(one, n), getattr(other, n))
        for n in names
    )


@pytest.mark.parametrize("indices", [[0], [3, 0, 3], [7, 6, 5, 4, 3, 2, 1, 0], list(range(8)), []])
def test_rows_in_batch_are_the_rows_one_by_one(sample, indices):
    store = TokenStore.open(sample[0], None)
    batch = store.rows(indices)
    assert len(batch) == len(indices)
    assert all(rows_equal(batch[i], store.row(index)) for i, index in enumerate(indices))
    assert all(rows_equal(row, store.row(index)) for row, index in zip(batch, indices, strict=True))
    assert batch.sequence.values.dtype == np.uint16
    assert len(pickle.loads(pickle.dumps(batch))) == len(indices)


def test_slices_run_over_all_shards(sample):
    store = TokenStore.open(sample[0], None)
    rows = [store.row(i) for i in range(store.num_rows)]
    keys = ("sequence", "loss_mask", "position_ids")
    flat = {key: np.concatenate([getattr(row, key) for row in rows]) for key in keys}
    n = store.num_tokens
    for begin, end in [(0, n), (0, 1), (n - 1, n), (5, 5), (9, 60), (10, 10), (55, 200), (10, 55)]:
        part = store.slice(begin, end, keys)
        assert list(part) == list(keys)
        assert all(np.array_equal(part[key], flat[key][begin:end]) for key in keys)
    assert list(store.slice(0, 3)) == ["sequence"]


@pytest.mark.parametrize(("begin", "end"), [(-1, 3), (0, 240), (239, 239), (5, 4)])
def test_slices_outside_the_stream(sample, begin, end):
    with pytest.raises(ValueError, match="no such range"):
        TokenStore.open(sample[0], None).slice(begin, end)


def test_what_is_not_there(sample):
    store = TokenStore.open(sample[0], None)
    for index in (-1, 8):
        with pytest.raises(IndexError, match="no such row"):
            store.row(index)
        with pytest.raises(StoreRangeError):
            store.rows([0, index])
    with pytest.raises(KeyError, match="loss_mask"):
        store.slice(0, 1, ("loss_msk",))
    with pytest.raises(StoreError, match="no such split"):
        TokenStore.open(sample[0], "test")
    with pytest.raises(IndexError):
        store.shards[6]


def test_arrow_holds_the_same_rows(sample):
    store = TokenStore.open(sample[0])
    table = store.to_arrow()
    assert table.column_names == ["sequence", "loss_mask", "segment_lengths"]
    for index, row in enumerate(table.to_pylist()):
        expected = store.row(index)
        assert row == {name: getattr(expected, name).tolist() for name in table.column_names}
    assert table.num_rows == store.num_rows


@pytest.mark.parametrize(
    ("mode", "row", "stream"),
    [("doc_reset", [0, 1, 0, 1, 2], [0, 1, 0, 1, 2, 0]), ("continuous", [0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5])],
)
def test_position_modes(tmp_path, mode, row, stream):
    store = open_with(tmp_path, [[1, 2], [3, 4, 5], [6]], position_ids_mode=mode, capacity=5, strategy="concat")
    assert store.row(0).position_ids.tolist() == store.rows([0])[0].position_ids.tolist() == row
    assert store.rows([1, 0]).position_ids.flat.tolist() == [0, *row]
    assert store.slice(0, 6, ("position_ids",))["position_ids"].tolist() == stream
    assert store.slice(1, 4, ("position_ids",))["position_ids"].tolist() == stream[1:4]


def test_no_positions(tmp_path):
    store = open_with(tmp_path, [[1, 2]], position_ids_mode="none")
    assert store.row(0).position_ids is None
    assert store.rows([0]).position_ids is None
    assert store.rows([0])[0].position_ids is None


def open_with(tmp_path: Path, lists, strategy="bfd", capacity=CAPACITY, masked=0, **manifest) -> TokenStore:
    """A store of one part, made of token lists."""
    from astrai_data.ledger import Ledger
    from astrai_data.pack import gather, plan
    from astrai_data.ragged import Ragged
    from astrai_data.store import DOCUMENTS_SCHEMA, INPUTS_SCHEMA, TaskWriter, assemble, config_hash, plan_hash

    root, key, n = tmp_path / "store", "k" * 32, len(lists)
    tokens = Ragged.from_rows(lists, np.uint16)
    runs = Ragged.from_rows([[min(masked, len(x)), max(len(x) - masked, 0)] for x in lists], np.int32)
    rules, zeros = Ragged.from_rows([[0, 1]] * n, np.uint16), np.zeros(n, np.int64)
    planned = plan(strategy, tokens.lengths, capacity, split=True)
    rows, segments = gather(tokens, runs, rules, zeros, np.arange(n, dtype=np.int32), zeros.astype(np.uint8), planned)
    writer = TaskWriter(root, key, storage_format="arrow")
    writer.write_part("train", None, rows, segments)
    writer.finish(DOCUMENTS_SCHEMA.empty_table(), Ledger(), [], [])
    config = {"output": {}}
    hashed = config_hash(config, "", "")
    assemble(
        root,
        task_keys=[key],
        task_inputs=[[]],
        inputs=INPUTS_SCHEMA.empty_table(),
        columns={"sequence": "uint16"},
        config=config,
        config_hash=hashed,
        plan_hash=plan_hash(hashed, [key]),
        tokenizer_files=read_tokenizer_files(tmp_path),
        ids_sha256="",
        template_sha256="",
        mask_rules=RULES,
        packing={"strategy": strategy, "max_packed_len": capacity},
        has_loss_mask=True,
        run={},
        **manifest,
    )
    return TokenStore.open(root)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=12),
    st.sampled_from(["simple", "bfd", "concat"]),
    st.integers(0, 5),
    st.data(),
)
def test_any_choice_of_rows_and_any_slice(tmp_path_factory, lengths, strategy, masked, data):
    lists, at = [], 0
    for length in [*lengths, 1]:
        lists.append(list(range(at, at + length)))
        at += length
    store = open_with(tmp_path_factory.mktemp("any"), lists, strategy, 16, masked)
    flagged = {token for ids in lists for token in ids[masked:]}
    rows = [store.row(i) for i in range(store.num_rows)]
    assert sorted(token for row in rows for token in row.sequence.tolist()) == list(range(at))
    assert all(row.loss_mask.tolist() == [token in flagged for token in row.sequence.tolist()] for row in rows)
    chosen = data.draw(st.lists(st.integers(0, store.num_rows - 1), max_size=6))
    assert all(rows_equal(store.rows(chosen)[i], rows[index]) for i, index in enumerate(chosen))
    begin = data.draw(st.integers(0, at - 1))
    end = data.draw(st.integers(begin, at))
    for key in ("sequence", "loss_mask", "position_ids"):
        flat = np.concatenate([getattr(row, key) for row in rows])
        assert store.slice(begin, end, (key,))[key].tolist() == flat[begin:end].tolist()


def test_rejects_name_their_source(sample):
    rejects = list(TokenStore.open(sample[0]).rejects())
    assert [(r["source"], r["reason"]) for r in rejects] == [
        ("text.jsonl", "invalid_json"),
        ("more.jsonl", "invalid_utf8"),
        ("more.jsonl", "invalid_json"),
    ]


def test_the_tokenizer_comes_with_the_store(sample):
    root, documents = sample
    assert TokenStore.open(root).tokenizer().decode(documents[0].ids) == documents[0].text


@pytest.mark.parametrize("text", ["s3://bucket/store", "https://host/store"])
def test_remote_stores_are_refused_clearly(text):
    with pytest.raises(StoreError, match="local directories only"):
        TokenStore.open(text)


def test_many_domains(tmp_path):
    documents = [Document("", f"d{i % 7}", ids=[i, i + 1], position=i) for i in range(40)]
    write_task(tmp_path / "s", "a" * 32, documents, [])
    commit(tmp_path / "s", ["a" * 32], [[0, 1]], write_bpe_tokenizer(tmp_path / "tokenizer"))
    store = TokenStore.open(tmp_path / "s")
    assert [entry["domain"] for entry in store.manifest.domains] == [f"d{i}" for i in range(7)]
    assert sum(entry["num_documents"] for entry in store.manifest.domains) == 40
    assert store.verify() == []
