"""The manifest: the one file that says what a store is, and the only commit point.

Readers trust only what it names, and it is replaced as one file, last. It holds nothing that may differ
between two equal runs; times, versions and absolute addresses stand in `run.json`, whose place it names but
whose digest it does not know.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import orjson

from astrai_data.errors import StoreError
from astrai_data.mask_rule import MaskRule
from astrai_data.store.files import write_bytes
from astrai_data.store.identity import canonical_json

FORMAT = "astrai-token-store"
FORMAT_VERSION = "1.0"
KNOWN_FEATURES: frozenset[str] = frozenset()
KINDS = ("packed",)
FILE_NAME = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """What a store holds.

    Attributes:
        kind: "packed".
        columns: token column -> dtype name.
        storage_format: "arrow" or "bin".
        packing: {"strategy", "max_packed_len" (null: none)}.
        has_loss_mask: whether some label may be untrained by configuration.
        position_ids_mode: how `position_ids` are computed on load and export.
        mask_rules: what segments' `mask_rules` refer to.
        config_hash, plan_hash, ids_sha256, template_sha256: store-format.md, "Hashes".
        tables: name -> {"path", "num_rows", "sha256" (logical digest)}.
        totals: num_rows, num_segments, num_documents, num_tokens, num_trained, num_shards.
        domains: the same sums for each domain, with a key "domain" (null first, then bytewise).
        splits: the same for each split, with a key "split".
        tokenizer: {"path", "files": {name: SHA-256}}.
        pipeline: {"path", "sha256"}.
        run: {"path"} of run.json.
    """

    kind: str
    columns: dict[str, str]
    storage_format: str
    packing: dict
    has_loss_mask: bool
    position_ids_mode: str
    mask_rules: tuple[MaskRule, ...]
    config_hash: str
    plan_hash: str
    ids_sha256: str
    template_sha256: str
    tables: dict[str, dict]
    totals: dict[str, int]
    domains: tuple[dict, ...]
    splits: tuple[dict, ...]
    tokenizer: dict
    pipeline: dict
    run: dict
    format: str = FORMAT
    format_version: str = FORMAT_VERSION
    required_features: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Canonical JSON."""
        return canonical_json(dataclasses.asdict(self))

    def write(self, root: Path) -> None:
        """Replace the store's manifest, atomically and durably."""
        write_bytes(root / FILE_NAME, self.to_bytes(), durable=True)

    @classmethod
    def from_bytes(cls, data: bytes, where: object = FILE_NAME) -> "Manifest":
        """Parse and check a manifest.

        Raises:
            StoreError: not a manifest, one of a newer major format, or one that needs a feature unknown here.
        """
        try:
            fields = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise _damaged(where, error) from error
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            raise _damaged(where, "no token store's manifest")
        _check_readable(fields, where)
        try:
            manifest = cls(**{field.name: _frozen(fields[field.name]) for field in dataclasses.fields(cls)})
            rules = tuple(MaskRule(**rule) for rule in fields["mask_rules"])
            _check_paths(manifest)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(where, f"{type(error).__name__}: {error}") from error
        return dataclasses.replace(manifest, mask_rules=rules)


def meta_folder(plan_hash: str) -> str:
    """Where a store of that plan keeps its tables, relative to the store."""
    return f"meta/{plan_hash[:16]}"


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _check_readable(fields: dict, where: object) -> None:
    version = str(fields.get("format_version"))
    if version.split(".")[0] != FORMAT_VERSION.split(".")[0]:
        raise StoreError(
            "this store has a format that this version of AstrAI does not read",
            where=where,
            got=f"format {version}",
            wanted=f"format {FORMAT_VERSION.split('.')[0]}.x",
            hint="install the version of AstrAI that wrote it, or a newer one",
        )
    unknown = sorted(set(map(str, fields.get("required_features") or ())) - KNOWN_FEATURES)
    if unknown or fields.get("kind") not in KINDS:
        raise StoreError(
            "this store needs features that this version of AstrAI does not have",
            where=where,
            got=", ".join([f"kind {fields.get('kind')!r}", *unknown]),
            wanted=f"kind {' or '.join(KINDS)}, features of {sorted(KNOWN_FEATURES)}",
            hint="install a newer AstrAI",
        )


def _check_paths(manifest: Manifest) -> None:
    """A manifest may come from anywhere: what it names must lie in the store."""
    named = [manifest.tokenizer, manifest.pipeline, manifest.run, *manifest.tables.values()]
    for path in (PurePosixPath(entry["path"]) for entry in named):
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{path} lies outside the store")


def _damaged(where: object, got: object) -> StoreError:
    return StoreError(
        "the manifest is damaged",
        where=where,
        got=got,
        wanted=f"JSON with format {FORMAT!r}",
        hint="restore manifest.json from a copy, or run the same `astrai preprocess` command with --overwrite",
    )
