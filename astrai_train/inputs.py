"""What a run begins with: store, strategy, size of a batch and model, found and checked against one another.

No torch is imported for it: who has mistyped a path is told so in half a second.
"""

from dataclasses import dataclass

from astrai_data.load import PackedRows
from astrai_data.store import TokenStore
from astrai_train.checkpoint.resume import SavedRun
from astrai_train.config import TrainConfig
from astrai_train.errors import TrainError
from astrai_train.same_run import check_store
from astrai_train.start_model import StartModel, choose_model

BATCH_TOKENS = 8192


@dataclass(frozen=True)
class Inputs:
    """What a run begins with.

    Attributes:
        config: what was asked for.
        saved: the checkpoint to go on from, if any.
        store: the split to train on.
        strategy: `seq` or `sft`.
        batch_size: the loader's `batch_tokens` or `rows_per_batch`.
        model: where its weights come from.
    """

    config: TrainConfig
    saved: SavedRun | None
    store: TokenStore
    strategy: str
    batch_size: dict[str, int]
    model: StartModel


def choose_inputs(config: TrainConfig, saved: SavedRun | None = None) -> Inputs:
    """Find and check what the configuration names.

    Raises:
        TrainError: something does not fit.
        StoreError, LoadError, ModelError: data or model cannot be used.
    """
    store = TokenStore.open(config.data)
    if saved:
        check_store(store, config, saved)
    strategy, size = _choose_strategy(config.strategy, store), _batch_size(config, store)
    model = choose_model(str(saved.path) if saved else config.model, store, config.window)
    return Inputs(config, saved, store, strategy, size, model)


def _choose_strategy(name: str, store: TokenStore) -> str:
    if name == "auto":
        name = "sft" if store.manifest.has_loss_mask else "seq"
    if name == "sft" and store.num_tokens and not store.num_trained:
        raise TrainError(
            "the store's mask leaves nothing to train",
            where=store.root,
            got=f"0 trained labels of {store.num_tokens:,} tokens",
            wanted="at least one trained label",
            hint="`astrai mask` shows the mask of a record; --strategy seq trains every token",
        )
    return name


def _batch_size(config: TrainConfig, store: TokenStore) -> dict[str, int]:
    if config.rows_per_batch is not None:
        return {"rows_per_batch": config.rows_per_batch}
    longest = config.window or PackedRows(store).max_tokens()
    return {"batch_tokens": config.batch_tokens or max(BATCH_TOKENS, longest)}
