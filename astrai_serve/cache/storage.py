"""Keys and values of all pages, as two tensors.

A slot is the place of one token: page * page_size + offset. Behind the pages lie two slots that belong to none:
padding rows of a forward write their keys to one, and what is read beyond the end of a sequence is read from the
other, which is always zero. So no sequence ever reads what another one wrote, not even to mask it.
"""

import torch

from astrai_train.models import ModelConfig


class KeyValueStorage:
    """`keys` and `values`, each [layers, slots + 2, Hkv, D].

    Args:
        config: of the model.
        num_slots: tokens that the pages hold together.
        device: of the model.
        dtype: of the model.
    """

    def __init__(self, config: ModelConfig, num_slots: int, *, device: torch.device | str, dtype: torch.dtype) -> None:
        shape = (config.num_hidden_layers, num_slots + 2, config.num_key_value_heads, config.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.waste_slot, self.zero_slot = num_slots, num_slots + 1

    def write(self, layer: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Put k and v [T, Hkv, D] into `slots` int64 [T]."""
        self.keys[layer].index_copy_(0, slots, k)
        self.values[layer].index_copy_(0, slots, v)

    def read(self, layer: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values at `slots` int64 [S, L]: two tensors [S, L, Hkv, D]."""
        flat = slots.flatten()
        return tuple(
            buffer[layer].index_select(0, flat).unflatten(0, slots.shape) for buffer in (self.keys, self.values)
        )


def bytes_per_token(config: ModelConfig, dtype: torch.dtype) -> int:
    """Bytes of the keys and values of one token in all layers: 2 * layers * Hkv * D * bytes of the dtype."""
    return 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * dtype.itemsize
