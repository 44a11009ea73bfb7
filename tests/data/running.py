"""Running pipelines in tests: small inputs, real processes, and stores compared byte for byte."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

TEXT_CONFIG = {
    "version": 2,
    "input": {"sections": [{"field": "text", "action": "train"}]},
    "preprocessing": {"max_packed_len": 64},
}


def write_jsonl(path: Path, records: list) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_config(path: Path, config: dict) -> Path:
    path.write_text(json.dumps(config))
    return path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "astrai", *map(str, arguments)]


def astrai(*arguments: object, check: bool = False, **options) -> subprocess.CompletedProcess:
    environment = os.environ | {"NO_COLOR": "1", "COLUMNS": "200"} | options.pop("env", {})
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=120, env=environment, check=False, **options
    )
    if check and done.returncode != 0:
        raise AssertionError(f"exit {done.returncode}: {done.stderr}\n{done.stdout}")
    return done


def digests(root: Path) -> dict[str, str]:
    """Path -> SHA-256 of every file of a store, but for run.json, which may differ between equal runs."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.name != "run.json"]
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def store_id(root: Path) -> str:
    return hashlib.sha256((root / "manifest.json").read_bytes()).hexdigest()
