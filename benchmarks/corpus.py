"""Benchmark text in which nothing repeats: Python's standard library, every line under a prefix of its own."""

import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path


def library_texts() -> list[str]:
    """The readable Python files of this interpreter's standard library, in order of their paths."""
    root = Path(sysconfig.get_paths()["stdlib"])
    texts = []
    for path in sorted(root.rglob("*.py")):
        if not {"site-packages", "dist-packages"} & set(path.parts):
            try:
                texts.append(path.read_text(encoding="utf-8"))
            except UnicodeDecodeError:
                continue
    return texts


def distinct_records(texts: list[str], salt: str) -> Iterator[bytes]:
    """JSONL lines {"text": ...} without end; no line of any text occurs twice, in any other salt neither."""
    number = 0
    while True:
        for text in texts:
            lines = (f"{salt}{number}_{line} {content}" for line, content in enumerate(text.split("\n")))
            yield json.dumps({"text": "\n".join(lines)}).encode() + b"\n"
            number += 1


def write_jsonl(path: Path, num_bytes: int, salt: str) -> int:
    """Write about `num_bytes` of distinct records to `path`; returns the bytes written."""
    written, texts = 0, library_texts()
    with path.open("wb") as file:
        for record in distinct_records(texts, salt):
            written += file.write(record)
            if written >= num_bytes:
                return written
    raise AssertionError("unreachable: the records do not end")


def train_tokenizer(directory: Path, vocab_size: int = 16384) -> Path:
    """The benchmark's tokenizer: byte-level BPE trained on the library itself."""
    from astrai_data.tokenizer import train_tokenizer as train

    train(library_texts(), vocab_size).save_pretrained(directory)
    return directory
