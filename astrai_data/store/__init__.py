"""Token stores: writing, committing, reading, proving and exporting them."""

from astrai_data.mask_rule import MaskRule
from astrai_data.store.assemble import assemble
from astrai_data.store.files import is_temporary, refused, write_bytes
from astrai_data.store.identity import canonical_json, config_hash, plan_hash
from astrai_data.store.locate import read_manifest
from astrai_data.store.manifest import Manifest, meta_folder
from astrai_data.store.reach import delete_temporaries
from astrai_data.store.rollup import read_ledger
from astrai_data.store.shards import ShardInfo
from astrai_data.store.tables import DOCUMENTS_SCHEMA, INPUTS_SCHEMA, ROW_GROUP_ROWS
from astrai_data.store.task import TaskRecord, TaskWriter, finished, read_task
from astrai_data.store.token_store import StoreRangeError, TokenStore
from astrai_data.store.tokenizer_copy import read_tokenizer_files

__all__ = [
    "DOCUMENTS_SCHEMA",
    "INPUTS_SCHEMA",
    "ROW_GROUP_ROWS",
    "Manifest",
    "MaskRule",
    "ShardInfo",
    "StoreRangeError",
    "TaskRecord",
    "TaskWriter",
    "TokenStore",
    "assemble",
    "canonical_json",
    "config_hash",
    "delete_temporaries",
    "finished",
    "is_temporary",
    "meta_folder",
    "plan_hash",
    "read_ledger",
    "read_manifest",
    "read_task",
    "read_tokenizer_files",
    "refused",
    "write_bytes",
]
