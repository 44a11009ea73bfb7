"""Canonical JSON and the hashes that name things.

A hash here decides whether work is reused, so it covers what decides bytes and nothing else: no path, no
time, no library version. A change of ours that changes bytes raises `BYTES_VERSION`.
"""

import hashlib

import orjson

BYTES_VERSION = 1


def canonical_json(value: object) -> bytes:
    """UTF-8 JSON with sorted keys, no spaces, no final newline; fractions become strings (0.25 -> "0.25").

    Equal values give equal bytes whatever the machine, which is not certain of printed floats.
    """
    return orjson.dumps(_without_fractions(value), option=orjson.OPT_SORT_KEYS)


def sha256_hex(data: bytes | memoryview) -> str:
    """SHA-256 of `data` in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def pipeline_document(config: dict, ids_sha256: str, template_sha256: str) -> bytes:
    """The bytes of `pipeline.json`: exactly what `config_hash` hashes.

    Args:
        config: the hashed form of the pipeline configuration.
        ids_sha256: digest of the tokenizer's ids.
        template_sha256: digest of the chat template.
    """
    hashed = {"ids_sha256": ids_sha256, "template_sha256": template_sha256, "config": config}
    return canonical_json({"bytes_version": BYTES_VERSION} | hashed)


def config_hash(config: dict, ids_sha256: str, template_sha256: str) -> str:
    """SHA-256 (hex) of `pipeline_document`: what decides the bytes of every task, but for its input."""
    return sha256_hex(pipeline_document(config, ids_sha256, template_sha256))


def plan_hash(config_hash: str, task_keys: list[str]) -> str:
    """SHA-256 (hex) of the configuration's hash and the ordered task keys: what decides the whole store."""
    return sha256_hex(canonical_json({"config_hash": config_hash, "task_keys": list(task_keys)}))


def _without_fractions(value: object) -> object:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {key: _without_fractions(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_fractions(item) for item in value]
    return value
