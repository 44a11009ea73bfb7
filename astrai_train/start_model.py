"""The model that a run begins with: a preset, a configuration with fresh weights, or a model that exists.

Whether it fits the store is decided here, before anything is trained: the same tokenizer, a row for every id, a
position for every token. None of that needs torch; building the model does.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from astrai_data.load import PackedRows
from astrai_data.store import TokenStore
from astrai_data.tokenizer import Tokenizer
from astrai_train.checkpoint.read import read_model_files
from astrai_train.errors import TrainError
from astrai_train.models import PRESETS, ModelConfig, preset

if TYPE_CHECKING:
    import torch

    from astrai_train.models import Transformer


@dataclass(frozen=True)
class StartModel:
    """A model that is known but not built: its configuration and where its weights are; None: fresh."""

    config: ModelConfig
    weights: Path | None

    def build(self, seed: int, device: "torch.device") -> "Transformer":
        """The model in training mode, its weights in float32. Fresh ones are made on the CPU: equal on all devices."""
        import torch

        from astrai_train.models import Transformer, load_model

        if self.weights is not None:
            return load_model(self.weights, device=device).train()
        generator = torch.Generator().manual_seed(seed)
        return Transformer(self.config, device="cpu", generator=generator).to(device).train()


def is_fresh(model: str) -> bool:
    """Whether `model`, as the configuration names it, stands for fresh weights."""
    return model in PRESETS or model.endswith(".json")


def choose_model(model: str, store: TokenStore, window: int | None) -> StartModel:
    """The model that the configuration names, checked against the store.

    Raises:
        ModelError: no such model, or one that cannot be read.
        TrainError: it does not fit the store.
    """
    tokenizer = store.tokenizer()
    if model in PRESETS:
        longest = max(PRESETS[model]["max_position_embeddings"], _longest_row(store, window))
        return StartModel(preset(model, vocab_size=tokenizer.max_id + 1, max_position_embeddings=longest), None)
    if is_fresh(model):
        start = StartModel(ModelConfig.from_file(model), None)
    else:
        files = read_model_files(model)
        start = StartModel(files.config, files.directory)
        if files.tokenizer is not None:
            _check_tokenizer(files.tokenizer, store)
    _check_vocabulary(start.config, tokenizer, model)
    _check_positions(start.config, store, window, model)
    return start


def _check_tokenizer(directory: Path, store: TokenStore) -> None:
    own, wanted = Tokenizer.from_pretrained(directory).ids_sha256, store.manifest.ids_sha256
    if own != wanted:
        raise TrainError(
            "the store was made with another tokenizer than the model's: its ids mean other tokens",
            where=f"{store.root}, {directory}",
            got=f"a store with tokenizer {wanted[:16]}",
            wanted=f"{own[:16]}, the model's",
            hint=f"make the store with `astrai preprocess --tokenizer {directory}`, or train fresh weights",
        )


def _check_vocabulary(config: ModelConfig, tokenizer: Tokenizer, model: str) -> None:
    if tokenizer.max_id >= config.vocab_size:
        raise TrainError(
            "the model has too small a vocabulary for this store",
            where=f"{model}: vocab_size",
            got=config.vocab_size,
            wanted=f"at least {tokenizer.max_id + 1}, the tokenizer's largest id and one",
            hint="for fresh weights raise vocab_size; else make the store with the model's tokenizer",
        )


def _check_positions(config: ModelConfig, store: TokenStore, window: int | None, model: str) -> None:
    needed = _longest_row(store, window)
    if needed > config.num_positions and window is None and store.manifest.position_ids_mode == "doc_reset":
        needed = _longest_segment(store)
    if needed > config.num_positions:
        raise TrainError(
            "the store has documents that are longer than the model's positions reach",
            where=f"{model}: max_position_embeddings",
            got=config.num_positions,
            wanted=f"at least {needed}",
            hint=f"read it in pieces (`--window {config.num_positions}`), pack shorter rows, or stretch the positions",
        )


def _longest_row(store: TokenStore, window: int | None) -> int:
    return window or PackedRows(store).max_tokens()


def _longest_segment(store: TokenStore) -> int:
    whole = TokenStore.open(store.root, None)
    return max(int(whole.segments(shard).length.max(initial=0)) for shard in range(len(whole.shards)))
