"""The configuration of a training run: one schema for files, flags and checkpoints.

Each key declares its type, default and meaning here and nowhere else; `astrai train` makes its options from these
declarations. Whether data, model and device exist is not looked at: that is the plan's business.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError

from astrai_data.config.files import placer, read_object
from astrai_data.config.part import ConfigPart
from astrai_data.config.problems import Problem, config_error, of_validation, shown, unknown_key
from astrai_data.errors import PipelineConfigError
from astrai_train.errors import TrainConfigError

REQUIRED = ("data", "model", "output_dir")
PATHS = ("data", "output_dir")
PRESET_NAMES = ("nano", "tiny", "small")
"""`astrai_train.models.PRESETS`, which needs torch; a test keeps them equal."""
UNSAVED = ("max_seconds", "threads")
"""Keys of one process and not of the run: a run that goes on does not take them from its checkpoint."""
BATCH_SIZES = ("batch_tokens", "rows_per_batch")
"""Of these one at most is given."""

_NO_OBJECT = "a training configuration is a JSON object"
_OBJECT = 'put the keys into {...}, as in {"data": "my-store", "model": "nano", "output_dir": "my-model"}'

Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]


class TrainConfig(ConfigPart):
    """How a store and a model become checkpoints.

    Raises:
        TrainConfigError: keys that are unknown, missing or wrong; the message lists them all.
    """

    other_names: ClassVar[Mapping[str, str]] = {
        "learning_rate": "lr",
        "num_epochs": "epochs",
        "num_train_epochs": "epochs",
        "batch_size": "rows_per_batch",
        "per_device_train_batch_size": "rows_per_batch",
        "gradient_accumulation_steps": "accumulate",
        "max_grad_norm": "clip",
        "warmup_steps": "warmup",
        "warmup_ratio": "warmup",
        "save_steps": "checkpoint_every",
        "save_every": "checkpoint_every",
        "save_every_seconds": "checkpoint_seconds",
        "save_total_limit": "keep",
        "eval_steps": "validate_every",
        "num_workers": "workers",
    }

    schema_url: str | None = Field(None, alias="$schema")
    """For editors; ignored."""
    data: Name
    """Folder of the token store."""
    model: Name
    """nano, tiny or small; a model directory to go on from; or a model's config.json for fresh weights."""
    output_dir: Name
    """Folder for checkpoints and metrics.jsonl."""
    strategy: Literal["auto", "seq", "sft"] = "auto"
    """seq trains every token; sft what the store's mask allows; auto: sft where the store has a mask."""
    epochs: Count | None = None
    """Times the data is read; by default once, or as often as max_steps needs."""
    max_steps: Count | None = None
    """Optimizer steps at most, those before a resume included."""
    max_seconds: Annotated[float, Field(gt=0)] | None = None
    """Stop with a checkpoint after so many seconds, when the step is done; the schedule does not know of it."""
    batch_tokens: Count | None = None
    """Tokens of a micro-batch at most; by default 8,192, or one row if that is longer."""
    rows_per_batch: Count | None = None
    """Rows or windows of a micro-batch, instead of batch_tokens."""
    window: Count | None = None
    """Read the store in windows of so many tokens, packed or not: short ones make quick steps on a CPU."""
    accumulate: Count = 1
    """Micro-batches of an optimizer step; at most those of an epoch."""
    lr: Annotated[float, Field(gt=0)] | None = None
    """Learning rate at its height; by default 1e-3 for fresh weights, 2e-5 for a model that exists."""
    warmup: Annotated[float, Field(ge=0)] = 0.05
    """Warm-up: below 1 a fraction of all steps, from 1 on a number of steps."""
    min_lr_ratio: Annotated[float, Field(ge=0, le=1)] = 0.1
    """The learning rate never falls below this part of its height."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    """AdamW's, on matrices only: not on norms, embeddings and biases."""
    clip: Annotated[float, Field(ge=0)] = 1.0
    """Largest norm of the gradient; 0: measured, not clipped."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Part of each label that is spread over the vocabulary."""
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = 0
    """Of fresh weights, of the order of the data and of every random number."""
    workers: NotNegative = 0
    """Processes that read ahead; 0: this one reads."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """What is computed in; the weights are float32 always."""
    threads: Annotated[int, Field(gt=0, le=1024)] | None = None
    """Threads that compute on the CPU; by default as many as torch takes."""
    checkpoint_every: NotNegative = 500
    """Steps between checkpoints; 0: only at the end."""
    checkpoint_seconds: Annotated[float, Field(gt=0)] | None = None
    """Also write one after the first step that ends so many seconds after the one before; by default steps decide."""
    keep: Count = 3
    """Newest checkpoints that are kept."""
    validate_every: NotNegative = 500
    """Steps between evaluations of the store's validation split, if it has one; 0: never."""
    validation_tokens: NotNegative = 1 << 20
    """Tokens of that split to read each time, whole batches in its own order; 0: all."""

    def __init__(self, /, **keys: Any) -> None:
        try:
            super().__init__(**keys)
        except ValidationError as error:
            raise config_error(of_validation(type(self), error), TrainConfigError, "training") from None
        if problems := list(_problems_between(self)):
            raise config_error(problems, TrainConfigError, "training")

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """Build from what a JSON file holds; paths stay as they are."""
        if not isinstance(raw, Mapping):
            raise TrainConfigError(_NO_OBJECT, where="the settings", got=shown(raw), wanted="an object", hint=_OBJECT)
        if wrong := [key for key in raw if not isinstance(key, str)]:
            raise config_error([unknown_key(cls, (key,)) for key in wrong], TrainConfigError, "training")
        return cls(**raw)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read a UTF-8 JSON file; paths in it are relative to it."""
        return cls.from_dict(read_settings(Path(path)))

    def to_dict(self) -> dict[str, Any]:
        """Every key, for a checkpoint; paths absolute."""
        return placed(self.model_dump(mode="json", exclude={"schema_url"}), Path.cwd())


def read_settings(path: Path) -> dict[str, Any]:
    """The keys of a configuration file, which need not be complete; its paths come out absolute.

    Raises:
        TrainConfigError: not readable, not JSON, an unknown key or a wrong value.
    """
    try:
        settings = read_object(path)
    except PipelineConfigError as error:
        told = {"where": error.where, "got": error.got, "wanted": error.wanted, "hint": error.hint}
        raise TrainConfigError(error.what, **told) from None
    if not isinstance(settings, dict):
        raise TrainConfigError(_NO_OBJECT, where=path, got=shown(settings), wanted="an object", hint=_OBJECT)
    try:
        check_settings(settings)
    except TrainConfigError as error:
        where = f"{path}: {error.where}" if error.where else path
        raise TrainConfigError(error.what, where=where, got=error.got, wanted=error.wanted, hint=error.hint) from None
    return placed(settings, path.parent)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise `TrainConfigError` for what is wrong with some keys, whether or not the required ones are among them."""
    TrainConfig(**dict.fromkeys(REQUIRED, "-") | dict(settings))


def placed(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same settings with the paths in them, relative to `folder`, made absolute."""
    place = placer(folder)
    paths = {key: place(settings[key]) for key in PATHS if isinstance(settings.get(key), str)}
    model = settings.get("model")
    if isinstance(model, str) and model not in PRESET_NAMES:
        paths["model"] = place(model)
    return dict(settings) | paths


def _problems_between(config: TrainConfig) -> Iterator[Problem]:
    if config.batch_tokens is not None and config.rows_per_batch is not None:
        got = f"batch_tokens = {config.batch_tokens}, rows_per_batch = {config.rows_per_batch}"
        what, hint = "the size of a batch is given once", "take one of the two out"
        yield Problem("batch_tokens", what, got, "one of the two", hint)
    if config.warmup >= 1 and config.warmup != int(config.warmup):
        wanted = "a fraction of the steps, below 1, or a whole number of steps"
        yield Problem("warmup", "wrong value", shown(config.warmup), wanted, f"{config.warmup:.0f}")
