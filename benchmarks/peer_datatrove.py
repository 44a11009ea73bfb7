"""datatrove's local executor as a peer: JSONL in, token files out. Runs in an environment of its own.

python benchmarks/peer_datatrove.py FOLDER tokenizer.json TARGET WORKERS
"""

import sys

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer

if __name__ == "__main__":
    folder, tokenizer_json, target, workers = sys.argv[1:]
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(folder, compression=None),
            DocumentTokenizer(
                target,
                tokenizer_name_or_path=tokenizer_json,
                eos_token=None,
                shuffle_documents=False,
                local_working_dir=None,
            ),
        ],
        tasks=int(workers),
        workers=int(workers),
        logging_dir=f"{target}-logs",
    ).run()
