"""The pipeline configuration as a whole: read, checked, resolved, written.

After construction every field holds the value that a run will use; what was given and what was left to its
default can still be told apart (`is_given`). Inputs and tokenizer are not looked at: that is the run's plan.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from astrai_data.config import checks, files, forms, problems, ready_made, resolve, schema
from astrai_data.config.data import CleanStep, DataConfig, TokenizerSpec
from astrai_data.config.part import ConfigPart
from astrai_data.config.process import OutputConfig, PreprocessingConfig, RunConfig
from astrai_data.config.sections import InputConfig
from astrai_data.errors import PipelineConfigError

Flag = Literal["train", "mask"]


def _version(number: int) -> int:
    if number not in (1, 2):
        raise PydanticCustomError("unknown_version", "unknown version")
    return number


class PipelineConfig(ConfigPart):
    """How raw records become a token store.

    Raises:
        PipelineConfigError: one or several keys are unknown, missing or wrong; the message lists them all.
    """

    reference_keys = frozenset({"version", "input", "mask", "mask_default", "preprocessing", "output"})

    schema_url: str | None = Field(None, alias="$schema")
    """JSON Schema for editors (`astrai schema` prints it); ignored."""
    name: str | None = None
    """A name for messages; ignored."""
    version: Annotated[int, AfterValidator(_version), Field(json_schema_extra={"enum": [1, 2]})] = 1
    """Version of the defaults: 2 for new pipelines; 1 takes those of configurations that name no version."""
    data: DataConfig = Field(default_factory=DataConfig)
    """Inputs and metadata."""
    tokenizer: TokenizerSpec | None = None
    """The tokenizer; `--tokenizer` wins."""
    clean: tuple[CleanStep, ...] = ()
    """Cleaning steps in order."""
    input: InputConfig = Field(default_factory=InputConfig)
    """From record to tokens."""
    mask: dict[str, Flag] = Field(default_factory=dict)
    """Message role -> `train` or `mask`, for sections with the action `$role`."""
    mask_default: Flag = "mask"
    """`train` or `mask` for roles that `mask` does not name."""
    preprocessing: PreprocessingConfig = Field(default_factory=PreprocessingConfig)
    """Filters, lengths and packing."""
    output: OutputConfig = Field(default_factory=OutputConfig)
    """What the store looks like."""
    run: RunConfig = Field(default_factory=RunConfig)
    """Random choices and limits of the run."""

    def __init__(self, /, **keys: Any) -> None:
        try:
            super().__init__(**keys)
        except ValidationError as error:
            raise problems.config_error(problems.of_validation(type(self), error)) from None
        self.__dict__.update(resolve.resolved_parts(self))
        problems.raise_any(checks.problems_in(self))

    @property
    def has_loss_mask(self) -> bool:
        """Whether the store has a `loss_mask`: some section is a template or is not trained."""
        return resolve.has_loss_mask(self.input)

    def dtype_of(self, column: str) -> str:
        """The resolved data type of a column: its name, or `auto`."""
        return self.output.dtype.get(column, "int32" if self.version == 1 else "auto")

    def check_runnable(self) -> None:
        """Check what a run needs and a configuration alone does not.

        Raises:
            PipelineConfigError: there is nothing to build, or a part is not supported yet.
        """
        problems.raise_any(checks.obstacles_in(self))

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> Self:
        """Build from what a JSON file holds; paths stay as they are. Raises PipelineConfigError."""
        if not isinstance(config, Mapping):
            raise problems.config_error([problems.not_an_object(config)])
        problems.raise_any(problems.unknown_key(cls, (key,)) for key in config if not isinstance(key, str))
        return cls(**config)

    @classmethod
    def from_file(cls, path_or_name: str | os.PathLike[str]) -> Self:
        """Read a JSON file, or a ready-made pipeline by its name.

        Paths in the file are relative to it and come out absolute; URLs stay as they are.

        Raises:
            PipelineConfigError: no such file or name, bad JSON, or bad keys.
        """
        path = ready_made.locate(path_or_name)
        config = files.read_object(path)
        try:
            return cls.from_dict(config)._with_paths(files.placer(path.parent))
        except PipelineConfigError as error:
            raise problems.in_file(error, path) from None

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """A checked copy with other values, by key path: `{"preprocessing.max_items": 10}`."""
        config = self.model_dump(exclude_unset=True, mode="json")
        for key_path, value in values.items():
            *parents, key = key_path.split(".")
            part = config
            for parent in parents:
                part[parent] = part.get(parent) or {}
                part = part[parent]
            part[key] = value
        return type(self).from_dict(config)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dict: the reference's keys always, ours where they differ from the default."""
        return forms.written(self)

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Write as UTF-8 JSON; relative paths become absolute, since a file has its own folder."""
        config = self._with_paths(files.placer(Path.cwd())).to_dict()
        text = json.dumps(config, indent=2, ensure_ascii=False)
        Path(path).write_text(text + "\n", encoding="utf-8")

    def hashed_form(self) -> dict[str, Any]:
        """The resolved configuration as `config_hash` takes it: equal for configurations that do the same.

        Without `$schema`, `name`, `version`, inputs, tokenizer, batch size, position mode and reject limits;
        fractions are strings.
        """
        return forms.hashed(self)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON Schema (draft 2020-12) of the configuration, for editors."""
        return schema.json_schema(cls)

    def _with_paths(self, place) -> Self:
        inputs = tuple(spec.model_copy(update={"path": place(spec.path)}) for spec in self.data.inputs)
        update: dict[str, Any] = {}
        if inputs:
            update["data"] = self.data.model_copy(update={"inputs": inputs})
        if self.tokenizer and self.tokenizer.path:
            update["tokenizer"] = self.tokenizer.model_copy(update={"path": place(self.tokenizer.path)})
        return self.model_copy(update=update)
