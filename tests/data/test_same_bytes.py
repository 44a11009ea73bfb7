"""Equal runs make equal stores, byte for byte: whatever the workers, kills, folder, day or the way of growing."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from .running import TEXT_CONFIG, astrai, command, digests, store_id, write_config, write_jsonl
from .toys import write_bpe_tokenizer

FILE_BYTES = 40 << 20  # above 32 MiB: a task of its own


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Four inputs, three of them large, with a configuration, a tokenizer and the store of an undisturbed run."""
    root = tmp_path_factory.mktemp("same-bytes")
    for name in ("a", "b", "c"):
        _write_large(root / "text" / f"{name}.jsonl", name)
    write_jsonl(root / "text" / "d.jsonl", [{"text": f"small {i}"} for i in range(100)] + [5])
    config = TEXT_CONFIG | {"run": {"validation_fraction": 0.1}, "preprocessing": {"max_packed_len": 512}}
    write_config(root / "pipeline.json", config)
    write_bpe_tokenizer(root / "tokenizer")
    astrai(*_preprocess(root, root / "store"), "--workers", 1, check=True)
    return root


def _write_large(path: Path, name: str) -> None:
    """Records of many lengths; most bytes lie in a field that nothing reads, which makes the file quick to process."""
    path.parent.mkdir(exist_ok=True)
    words = "the quick brown fox jumps over it "
    texts = [f"{name} {i} {words * (i * 7919 % 23)}" for i in range(1000)]
    block = "".join(f'{{"text": "{text}", "unread": "{"x" * 8000}"}}\n' for text in texts)
    with path.open("w") as file:
        while file.tell() < FILE_BYTES:
            file.write(block)


def _preprocess(root: Path, store: Path, inputs: str = "text/*.jsonl") -> list:
    options = ["-o", store, "-c", root / "pipeline.json", "--tokenizer", root / "tokenizer"]
    return ["preprocess", root / inputs, *options]


def test_workers(corpus, tmp_path):
    astrai(*_preprocess(corpus, tmp_path / "store"), "--workers", 2, check=True)
    assert digests(tmp_path / "store") == digests(corpus / "store")


def _finished_tasks(store: Path) -> int:
    return len(list(store.glob("data/*/task.json")))


KILL_MOMENTS = {
    "at the start": lambda store: (store / ".work" / "plan.json").exists(),
    "in the first task": lambda store: any(store.glob("data/*/*.arrow")),
    "after two tasks": lambda store: _finished_tasks(store) >= 2,
}


@pytest.mark.parametrize("moment", KILL_MOMENTS)
@pytest.mark.parametrize("workers", [1, 2])
def test_kill_and_restart(corpus, tmp_path, moment, workers):
    store = tmp_path / "store"
    arguments = [*_preprocess(corpus, store), "--workers", workers]
    process = subprocess.Popen(command(*arguments), start_new_session=True, stderr=subprocess.DEVNULL)
    while not KILL_MOMENTS[moment](store):
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (store / "manifest.json").exists()
    noted = len(list(store.glob(".work/done/*.json")))
    again = astrai(*arguments, check=True)
    assert digests(store) == digests(corpus / "store")
    assert ("from before" in again.stderr) == (noted > 0)


def test_another_day_and_folder(corpus, tmp_path):
    moved = tmp_path / "elsewhere" / "deep"
    shutil.copytree(corpus / "text", moved / "text")
    shutil.copytree(corpus / "tokenizer", moved / "tokenizer")
    shutil.copy(corpus / "pipeline.json", moved)
    for path in moved.rglob("*"):
        os.utime(path, (1e9, 1e9))
    (tmp_path / "sitecustomize.py").write_text(
        "import time\nnow, now_ns = time.time, time.time_ns\n"
        "time.time = lambda: now() + 4e7\ntime.time_ns = lambda: now_ns() + 4 * 10**16\n"
    )
    arguments = _preprocess(moved, tmp_path / "store")
    astrai(*arguments, env={"PYTHONPATH": str(tmp_path), "TZ": "Asia/Tokyo"}, check=True)
    assert digests(tmp_path / "store") == digests(corpus / "store")
    assert store_id(tmp_path / "store") == store_id(corpus / "store")


def test_update_after_adding_a_file(corpus, tmp_path):
    store, text = tmp_path / "store", tmp_path / "text"
    shutil.copytree(corpus / "text", text)
    (text / "b.jsonl").rename(tmp_path / "b.jsonl")
    options = ["-o", store, "-c", corpus / "pipeline.json", "--tokenizer", corpus / "tokenizer"]
    arguments = ["preprocess", text / "*.jsonl", *options]
    astrai(*arguments, check=True)
    before = {path: path.stat().st_mtime_ns for path in store.glob("data/*/task.json")}
    (tmp_path / "b.jsonl").rename(text / "b.jsonl")
    refused = astrai(*arguments)
    assert refused.returncode == 1
    assert "b.jsonl" in refused.stderr
    assert "--update" in refused.stderr
    astrai(*arguments, "--update", check=True)
    assert digests(store) == digests(corpus / "store")
    after = {path: path.stat().st_mtime_ns for path in store.glob("data/*/task.json")}
    assert sum(after.get(path) == time_ns for path, time_ns in before.items()) >= 2  # a and c were not read again


def test_a_finished_store_is_left_alone(corpus):
    before = {path: path.stat().st_mtime_ns for path in (corpus / "store").rglob("*")}
    done = astrai(*_preprocess(corpus, corpus / "store"), check=True)
    assert "finished" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in (corpus / "store").rglob("*")} == before


def test_bin_and_arrow_hold_the_same(corpus, tmp_path):
    from astrai_data import TokenStore

    config = TEXT_CONFIG | {
        "run": {"validation_fraction": 0.1},
        "preprocessing": {"max_packed_len": 512},
        "output": {"storage_format": "bin"},
    }
    write_config(tmp_path / "pipeline.json", config)
    arguments = ["preprocess", corpus / "text" / "d.jsonl", "-o", tmp_path / "bin", "-c", tmp_path / "pipeline.json"]
    astrai(*arguments, "--tokenizer", corpus / "tokenizer", check=True)
    config["output"]["storage_format"] = "arrow"
    write_config(tmp_path / "pipeline.json", config)
    arguments[3] = tmp_path / "arrow"
    astrai(*arguments, "--tokenizer", corpus / "tokenizer", check=True)
    stores = [TokenStore.open(tmp_path / kind) for kind in ("bin", "arrow")]
    texts = [sorted(store.tokenizer().decode_batch(store.tokens(0))) for store in stores]
    assert texts[0] == texts[1]
