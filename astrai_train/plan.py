"""What a run will do, settled and checked before it does it: the configuration with every `auto` decided."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from astrai_data.inspect.numbers import counted
from astrai_data.load import PackedLoader
from astrai_data.store import TokenStore
from astrai_train import few_steps
from astrai_train.checkpoint.resume import SavedRun
from astrai_train.config import TrainConfig
from astrai_train.device import Precision, choose_precision
from astrai_train.errors import TrainError
from astrai_train.inputs import Inputs, choose_inputs
from astrai_train.length import RunLength
from astrai_train.models.kernels import compiled_op
from astrai_train.optim import CosineSchedule
from astrai_train.start_model import StartModel, is_fresh
from astrai_train.strategies import NextToken

FRESH_LR, TUNING_LR = 1e-3, 2e-5
MEANINGS = {"seq": "every token is trained", "sft": "what the store's mask allows is trained"}


@dataclass(frozen=True)
class Plan:
    """A run that can start.

    Attributes:
        config: what was asked for.
        saved: the checkpoint to go on from, if any.
        precision: device and dtype.
        store, validation: the splits; no validation where there is none or none is wanted.
        model: where its weights come from.
        strategy: `seq` or `sft`.
        batch_size: the loader's `batch_tokens` or `rows_per_batch`.
        length: where the run ends.
        lr: the learning rate at its height.
    """

    config: TrainConfig
    saved: SavedRun | None
    precision: Precision
    store: TokenStore
    validation: TokenStore | None
    model: StartModel
    strategy: str
    batch_size: dict[str, int]
    length: RunLength
    lr: float

    @property
    def total_steps(self) -> int:
        """Steps of the whole run, those before a resume included."""
        return self.length.total_steps(*self._done)

    @property
    def _done(self) -> tuple[int, int]:
        """Steps and micro-batches before a resume."""
        return (self.saved.step, self.saved.num_batches) if self.saved else (0, 0)

    def schedule(self) -> CosineSchedule:
        """The learning rate of each step."""
        config = self.config
        return CosineSchedule.over(self.total_steps, lr=self.lr, warmup=config.warmup, min_ratio=config.min_lr_ratio)

    def loss(self) -> NextToken:
        """The strategy as code."""
        every_token = self.strategy == "seq" and self.store.manifest.has_loss_mask
        return NextToken(every_token, self.config.label_smoothing)

    def loader(self) -> PackedLoader:
        """The batches to train on, shuffled, from the begin."""
        config = self.config
        return PackedLoader(
            self.store, seed=config.seed, window=config.window, workers=config.workers, **self.batch_size
        )

    def validation_loader(self) -> PackedLoader:
        """The validation split in its own order."""
        return PackedLoader(self.validation, seed=0, window=self.config.window, shuffle=False, **self.batch_size)

    def described(self) -> Iterator[tuple[str, str]]:
        """What will be done and why, as (subject, words)."""
        yield "model", self._model_words()
        yield "data", self._data_words()
        yield "strategy", f"{self.strategy}: {MEANINGS[self.strategy]}"
        yield "device", self._device_words()
        dtype = str(self.precision.dtype).removeprefix("torch.")
        yield "dtype", f"{dtype} ({self.precision.dtype_reason})"
        yield "steps", self._length_words()
        floor = self.lr * self.config.min_lr_ratio
        yield "lr", f"{self.lr:g}, warm-up of {counted(self.schedule().warmup_steps, 'step')}, cosine to {floor:g}"
        yield "output", self.config.output_dir
        if few_steps.is_few(self.total_steps, self.config):
            yield "warning", few_steps.warning(self)

    def _model_words(self) -> str:
        config = self.model.config
        layers = counted(config.num_hidden_layers, "layer")
        sizes = f"{layers} of {config.hidden_size}, vocabulary {config.vocab_size:,}"
        if self.saved:
            return f"{sizes}; goes on from {self.saved.path.name}"
        weights = f"fresh weights, seed {self.config.seed}" if self.model.weights is None else "weights from there"
        return f"{self.config.model}: {sizes}; {weights}"

    def _data_words(self) -> str:
        extra = f"; validation {self.validation.num_tokens:,}" if self.validation else ""
        tokens, rows = counted(self.store.num_tokens, "token"), counted(self.store.num_rows, "row")
        return f"{Path(self.config.data).name}: {tokens} in {rows}, {self.store.num_trained:,} trained{extra}"

    def _device_words(self) -> str:
        device = self.precision.device
        threads = self.config.threads or torch.get_num_threads()
        return f"{device} ({self.precision.device_reason})" + f", {counted(threads, 'thread')}" * (device.type == "cpu")

    def _length_words(self) -> str:
        length, size = self.length, " ".join(f"{name} {number:,}" for name, number in self.batch_size.items())
        epochs = "" if length.epochs is None else f" in {counted(length.epochs, 'epoch')}"
        done = f", {self.saved.step:,} of them done" if self.saved else ""
        batches = "batch" if length.batches_per_epoch == 1 else "batches"
        window = f", accumulated {length.accumulate}" if length.accumulate > 1 else ""
        an_epoch = f"{length.batches_per_epoch:,} {batches} an epoch ({size}{window})"
        return f"{self.total_steps:,}{epochs}{done}; {an_epoch}; {self._times_words()}"

    def _times_words(self) -> str:
        times, kind = self.length.times_read(*self._done), "window" if self.config.window else "row"
        if times < 1:
            return f"{times:.0%} of the {kind}s are seen"
        how_often = "once" if times == 1 else f"{times:,.0f} times" if times.is_integer() else f"{times:,.1f} times"
        return f"each {kind} is seen {how_often}"


def make_plan(config: TrainConfig, saved: SavedRun | None = None) -> Plan:
    """Settle everything that is `auto` and check everything that can be checked without training.

    Raises:
        TrainError: something does not fit.
        StoreError, LoadError, ModelError: data or model cannot be used.
        KernelError: ASTRAI_KERNELS asks for what evaluations cannot have.
    """
    return plan_over(choose_inputs(config, saved))


def plan_over(inputs: Inputs) -> Plan:
    """The plan where the inputs are chosen already.

    Raises:
        TrainError, LoadError, KernelError: as `make_plan`.
    """
    config, saved, store, model = inputs.config, inputs.saved, inputs.store, inputs.model
    loader = PackedLoader(store, seed=config.seed, window=config.window, **inputs.batch_size)
    _check_accumulate(config.accumulate, loader.batches_per_epoch)
    precision, validation = choose_precision(config.device, config.dtype), _validation_split(config, store)
    if validation:
        _ask_kernels(model, precision)
    return Plan(
        config=config,
        saved=saved,
        precision=precision,
        store=store,
        validation=validation,
        model=model,
        strategy=inputs.strategy,
        batch_size=inputs.batch_size,
        length=RunLength.of(loader.batches_per_epoch, config.accumulate, config.epochs, config.max_steps),
        lr=config.lr or _usual_lr(config.model, saved),
    )


def _ask_kernels(model: StartModel, precision: Precision) -> None:
    """Steps compute with torch, evaluations with the kernels: what these refuse is to be told before the first step."""
    with torch.no_grad():
        compiled_op(
            "attention_varlen", torch.empty(1, 1, model.config.head_dim, dtype=precision.dtype, device=precision.device)
        )


def _usual_lr(model: str, saved: SavedRun | None) -> float:
    if saved:
        return saved.state["schedule"]["lr"]
    return FRESH_LR if is_fresh(model) else TUNING_LR


def _check_accumulate(accumulate: int, batches_per_epoch: int) -> None:
    if accumulate > batches_per_epoch:
        raise TrainError(
            "a step would read the data more than once",
            where="accumulate",
            got=accumulate,
            wanted=f"at most {batches_per_epoch}, the micro-batches of an epoch",
            hint=f"--accumulate {batches_per_epoch} takes all data in a step; smaller micro-batches give more of them",
        )


def _validation_split(config: TrainConfig, store: TokenStore) -> TokenStore | None:
    has_split = any(entry["split"] == "validation" and entry["num_tokens"] for entry in store.manifest.splits)
    return TokenStore.open(store.root, "validation") if has_split and config.validate_every else None
