"""Where the records come from and which tokenizer reads them."""

from typing import Annotated, Literal

from pydantic import Field

from astrai_data.config.part import ConfigPart

InputFormat = Literal["auto", "jsonl", "json", "parquet", "arrow", "csv", "text", "hf"]
Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(gt=0, lt=2**63)]


class InputSpec(ConfigPart):
    """One input: a file, a folder, a pattern or a URL."""

    path: Name
    """File, folder, pattern (`**` crosses folders) or URL; relative to the configuration's file."""
    format: InputFormat = "auto"
    """Format of the files; `auto`: by suffix. `text`: one file is one record with the field `text`."""
    domain: str | None = None
    """Domain of records that name none themselves (`output.domain_key`)."""
    fields: dict[str, Name] = Field(default_factory=dict)
    """Field names of this input that differ: the name used in this pipeline -> the name in the files."""


class DataConfig(ConfigPart):
    """The inputs and what is carried along from them."""

    inputs: tuple[InputSpec, ...] = ()
    """Inputs in order; those of the command line come after them."""
    keep_fields: tuple[Name, ...] = ()
    """Record fields kept as metadata in the store's documents table: url, licence, score, ..."""
    max_record_bytes: Count = 64 * 2**20
    """Larger records are rejected; bytes."""


class TokenizerSpec(ConfigPart):
    """The tokenizer."""

    path: Name | None = None
    """Folder with `tokenizer.json`; relative to the configuration's file. `--tokenizer` wins."""
    backend: Literal["auto", "tokenizers", "fastokens"] = "auto"
    """Library that encodes; `auto` takes the fast one if it agrees with `tokenizers` on this input."""


class CleanStep(ConfigPart, extra="allow"):
    """One cleaning step; further keys are the step's own."""

    use: Name
    """Name of the step."""
