"""The usual preparation script, as a peer: a process pool, one `tokenizers` call a document, one writer."""

import json
import multiprocessing
import time
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer


class Encoder:
    """A pool worker's state: the tokenizer, opened once a process."""

    tokenizer: Tokenizer

    @classmethod
    def open(cls, path: str) -> None:
        """Run once in each worker."""
        cls.tokenizer = Tokenizer.from_file(path)

    @classmethod
    def encode(cls, line: str) -> list[int]:
        """The ids of one JSONL record's text."""
        return cls.tokenizer.encode(json.loads(line)["text"], add_special_tokens=False).ids


def pool_rate(source: Path, tokenizer_json: Path, target: Path, workers: int) -> float:
    """MB/s of JSONL through the pool, once its workers stand."""
    with multiprocessing.Pool(workers, Encoder.open, (str(tokenizer_json),)) as pool:
        pool.map(Encoder.encode, ['{"text": "warm"}'] * workers)
        started = time.perf_counter()
        with source.open(encoding="utf-8") as lines, target.open("wb") as out:
            for ids in pool.imap(Encoder.encode, lines, chunksize=32):
                out.write(np.array(ids, np.int32).tobytes())
        seconds = time.perf_counter() - started
    target.unlink()
    return source.stat().st_size / 1e6 / seconds
