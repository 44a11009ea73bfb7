"""The floor of preprocessing: read, parse, tokenize with fastokens, write int32 ids; nothing else.

    python benchmarks/bare_loop.py SOURCE.jsonl tokenizer.json TARGET WORKERS

Each process takes an equal share of the file, in blocks of 1 MiB, which is the fastest size here.
"""

import multiprocessing
import os
import sys
from pathlib import Path

BLOCK_BYTES = 1 << 20


def tokenize_share(source: str, tokenizer_json: str, target: str, share: int, num_shares: int) -> None:
    os.environ["RAYON_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // num_shares))
    import fastokens
    import numpy as np
    import orjson

    tokenizer = fastokens.Tokenizer.from_file(tokenizer_json)
    size = os.path.getsize(source)
    end = size * (share + 1) // num_shares
    with open(source, "rb") as file, open(f"{target}.{share}", "wb") as out:
        file.seek(size * share // num_shares)
        if share:
            file.readline()
        while file.tell() < end:
            block = file.read(min(BLOCK_BYTES, end - file.tell())) + file.readline()
            texts = [orjson.loads(line)["text"] for line in block.splitlines()]
            ids, _ = tokenizer.encode_batch_flat(texts)
            out.write(np.frombuffer(ids, np.uint32).astype(np.int32))
    os.unlink(f"{target}.{share}")


if __name__ == "__main__":
    source, tokenizer_json, target, workers = sys.argv[1:]
    Path(target).parent.mkdir(exist_ok=True)
    shares = [
        multiprocessing.Process(target=tokenize_share, args=(source, tokenizer_json, target, share, int(workers)))
        for share in range(int(workers))
    ]
    for process in shares:
        process.start()
    for process in shares:
        process.join()
    sys.exit(max(process.exitcode for process in shares))
