"""Rotary positions: the table of cosines and sines, and the rotation of queries and keys.

The table is computed in float64 and kept in float32 whatever the dtype of the weights (float64 for a float64 model):
rounded to bfloat16 it would be off by 2e-3. It is no buffer, so that casting the model cannot touch it, and it is
made on first use on each device.
"""

import torch
from torch import nn

from astrai_train.models.config import ModelConfig
from astrai_train.models.kernels import compiled_op

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines, each [T, head_dim / 2] in float32 or float64."""


class RotaryTable(nn.Module):
    """Cosines and sines of every position that a configuration allows."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_positions = config.num_positions
        scaling = config.scaling
        self._scale = scaling.attention_factor
        self._frequencies = scaling.frequencies(config.head_dim, config.rope_theta, config.max_position_embeddings)
        self._tables: dict[tuple[torch.device, torch.dtype], Rotation] = {}

    def forward(self, position_ids: torch.Tensor, dtype: torch.dtype) -> Rotation:
        """The rows of `position_ids` int64 [T], each below `num_positions`, for a model of this dtype."""
        cos, sin = self._table(position_ids.device, torch.promote_types(dtype, torch.float32))
        return cos.index_select(0, position_ids), sin.index_select(0, position_ids)

    def _table(self, device: torch.device, dtype: torch.dtype) -> Rotation:
        if (device, dtype) not in self._tables:
            positions = torch.arange(self.num_positions, dtype=torch.float64, device="cpu")
            angles = torch.outer(positions, torch.tensor(self._frequencies, dtype=torch.float64, device="cpu"))
            pair = angles.cos() * self._scale, angles.sin() * self._scale
            self._tables[device, dtype] = tuple(part.to(device, dtype) for part in pair)
        return self._tables[device, dtype]

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_tables": {}}  # a copy or another process makes its own


def rotate_pair(q: torch.Tensor, k: torch.Tensor, rotation: Rotation, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate queries [T, Hq, D] and keys [T, Hkv, D]; `layout` is `half` or `interleaved`."""
    interleaved = layout == "interleaved"
    if (kernel := compiled_op("rotary", q)) is not None:
        return kernel((q, k), *rotation, layout)
    return _Rotate.apply(q, *rotation, interleaved), _Rotate.apply(k, *rotation, interleaved)


class _Rotate(torch.autograd.Function):
    """A rotation's gradient is the rotation back: nothing but the table needs to be kept for it."""

    @staticmethod
    def forward(ctx, x, cos, sin, interleaved):
        ctx.save_for_backward(cos, sin)
        ctx.interleaved = interleaved
        return _rotated(x, cos, sin, interleaved)

    @staticmethod
    def backward(ctx, grad):
        cos, sin = ctx.saved_tensors
        return _Rotate.apply(grad, cos, -sin, ctx.interleaved), None, None, None


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    cos, sin = cos[:, None], sin[:, None]  # the same for every head
    wide = x.to(cos.dtype)
    if interleaved:
        first, second = wide[..., 0::2], wide[..., 1::2]
        turned = torch.stack((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)
    else:
        first, second = wide.chunk(2, -1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    return turned.to(x.dtype)
