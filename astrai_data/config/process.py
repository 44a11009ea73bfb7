"""Lengths, packing, the store's files and the run's random choices."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from astrai_data.config.data import Count, Name
from astrai_data.config.part import ConfigPart

Dtype = Literal["auto", "bool", "uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64"]
NotNegative = Annotated[int, Field(ge=0, lt=2**63)]


class PreprocessingConfig(ConfigPart):
    """Which records are kept and how documents fill rows."""

    reference_keys = frozenset(
        {
            "max_seq_len",
            "min_chars",
            "max_chars",
            "max_items",
            "batch_size",
            "packing_strategy",
            "max_packed_len",
            "truncation_mode",
        }
    )
    v1_defaults: ClassVar = {
        "max_seq_len": 2048,
        "min_chars": 50,
        "packing_strategy": "simple",
        "drop_untrained": False,
    }
    refused: ClassVar = {"packing_strategy": {"greedy": "`bfd`; `greedy` is not supported yet"}}

    max_seq_len: Count | None = None
    """Cap on a document's tokens; the start is kept. Default: 2048 in version 1, null (none) in version 2."""
    min_chars: NotNegative = 0
    """Shorter texts are filtered, if all sections are trained texts. Default: 50 in version 1, else 0."""
    max_chars: Count = 2_000_000
    """Longer texts are filtered, if all sections are trained texts."""
    max_items: Annotated[NotNegative | None, AfterValidator(lambda count: count or None)] = None
    """Stop after so many kept records; null or 0: no limit."""
    batch_size: Count = 256
    """Records tokenized together; changes no byte of the result."""
    packing_strategy: Literal["simple", "bfd", "bfd_split", "concat"] = "bfd"
    """How documents fill rows: `simple` one a row, `bfd` best fit, `bfd_split` best fit of pieces, `concat`
    end to end. Default: `simple` in version 1, `bfd` in version 2."""
    max_packed_len: Count = 8192
    """Tokens that a row holds."""
    truncation_mode: Literal["keep_start", "keep_end"] = "keep_start"
    """Which end survives where `over_long` truncates."""
    over_long: Literal["truncate", "split", "drop"] = "split"
    """Documents above `max_packed_len`. Default: `split` with `bfd_split` and `concat`; else `truncate` in
    version 1; in version 2 `split` where all is trained, else `drop`."""
    drop_untrained: bool = True
    """Drop documents with nothing to train. Default: no in version 1, yes in version 2."""


class OutputConfig(ConfigPart):
    """What the store looks like."""

    reference_keys = frozenset({"domain_key", "storage_format", "max_tokens_per_shard", "dtype", "position_ids_mode"})
    v1_defaults: ClassVar = {"storage_format": "bin"}
    refused: ClassVar = {
        "storage_format": {
            "jsonl": "`arrow`; `astrai export --to jsonl` writes JSONL from a store",
            "h5": "`arrow`; HDF5 is not written",
        }
    }

    domain_key: Name | None = None
    """Record field whose string names the record's domain."""
    storage_format: Literal["arrow", "bin"] = "arrow"
    """Files of the token columns: `arrow` or raw `bin`. Default: `bin` in version 1, `arrow` in version 2."""
    max_tokens_per_shard: Count = 100_000_000
    """A part of the store is closed at so many tokens."""
    dtype: dict[str, Dtype] = Field(default_factory=dict)
    """Data type by column. Default: `int32` in version 1, `auto` (the smallest that fits) in version 2."""
    position_ids_mode: Literal["none", "doc_reset", "continuous"] = "doc_reset"
    """How `position_ids` is computed on load and export: restarting with every document, or one range."""


class RunConfig(ConfigPart):
    """Random choices and how much bad input a run bears."""

    v1_defaults: ClassVar = {"shuffle_rows": False}

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of every random choice."""
    shuffle_rows: bool = True
    """Shuffle packed rows inside a part. Default: no in version 1, yes in version 2."""
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the documents that goes to the split `validation`, chosen by their text's hash."""
    max_reject_ratio: Annotated[float, Field(ge=0, le=1)] = 0.01
    """The run fails if more than this share of the records is rejected, and at least `min_rejects`."""
    min_rejects: NotNegative = 100
    """Fewer rejected records never fail the run."""
