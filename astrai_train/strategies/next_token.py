"""Predicting the next token: pre-training (`seq`) and supervised fine-tuning (`sft`).

They differ in the labels alone. `sft` takes them as the loader gives them: -100 where the store's mask, or the end of
a segment, leaves nothing to learn. `seq` trains every token of a segment after its first, mask or no mask.
"""

from dataclasses import dataclass, fields

import torch

from astrai_data.load.batch import IGNORED
from astrai_train.models import PackedAttention, Transformer
from astrai_train.strategies.linear_cross_entropy import linear_cross_entropy


@dataclass(frozen=True)
class TokenBatch:
    """One micro-batch of T tokens with m trained labels.

    Attributes:
        input_ids, position_ids: int64 [T].
        cu_seqlens: int32 [n + 1].
        rows: int64 [m], the tokens that have a label.
        targets: int64 [m], their labels.
        max_seqlen: tokens of the longest segment.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    cu_seqlens: torch.Tensor
    rows: torch.Tensor
    targets: torch.Tensor
    max_seqlen: int

    @property
    def num_tokens(self) -> int:
        """T."""
        return len(self.input_ids)

    @property
    def num_labels(self) -> int:
        """m."""
        return len(self.targets)

    def to(self, device: torch.device) -> "TokenBatch":
        """The same batch there; to CUDA without waiting."""
        if device.type == "cpu":
            return self
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return TokenBatch(**{name: _moved(value, device) for name, value in values.items()})


@dataclass(frozen=True)
class NextToken:
    """The loss of the next token.

    Attributes:
        every_token: train masked tokens too.
        label_smoothing: see `linear_cross_entropy`.
    """

    every_token: bool = False
    label_smoothing: float = 0.0

    def prepare(self, batch: dict) -> TokenBatch:
        """What is needed of the loader's batch; labels are found here, on the CPU, so that counting them is free."""
        labels = _all_labels(batch) if self.every_token else batch["labels"]
        rows = torch.nonzero(labels != IGNORED).flatten()
        names = ("input_ids", "position_ids", "cu_seqlens", "max_seqlen")
        return TokenBatch(**{name: batch[name] for name in names}, rows=rows, targets=labels[rows])

    def loss_sum(self, model: Transformer, batch: TokenBatch) -> torch.Tensor:
        """The sum of the losses of all labels of the batch: a scalar."""
        attention = PackedAttention(batch.cu_seqlens, batch.max_seqlen)
        hidden = model.hidden(batch.input_ids, batch.position_ids, attention).index_select(0, batch.rows)
        return linear_cross_entropy(hidden, model.head_weight, batch.targets, label_smoothing=self.label_smoothing)


def _all_labels(batch: dict) -> torch.Tensor:
    """int64 [T]: the next token of the same segment, whatever the mask."""
    labels = batch["input_ids"].roll(-1)
    labels[batch["cu_seqlens"][1:].long() - 1] = IGNORED
    return labels


def _moved(value: torch.Tensor | int, device: torch.device) -> torch.Tensor | int:
    if isinstance(value, int):
        return value
    if device.type == "cuda":
        return value.pin_memory().to(device, non_blocking=True)
    return value.to(device)
