"""The decoder language model, in the layout and with the parameter names of Llama.

Input is one packed row: tokens of several documents one after the other, `[T]`, no batch dimension and no padding.
Tied embeddings are one parameter used twice, not two modules that share one, so nothing (sharding, copying, saving)
can part them.
"""

import torch
from torch import nn
from torch.nn import functional

from astrai_train.models.attention import Attention, AttentionContext
from astrai_train.models.config import ModelConfig
from astrai_train.models.errors import ModelError
from astrai_train.models.feed_forward import FeedForward
from astrai_train.models.initialise import initialise
from astrai_train.models.norm import RMSNorm
from astrai_train.models.rope import RotaryTable, Rotation


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: torch.Tensor, rotation: Rotation, context: AttentionContext) -> torch.Tensor:
        """[T, hidden] -> [T, hidden]."""
        x = x + self.self_attn(self.input_layernorm(x), rotation, context)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Everything but the head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config, layer) for layer in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class Transformer(nn.Module):
    """A decoder language model with fresh weights in float32.

    Args:
        config: sizes and switches.
        device: where the weights are made; on `meta` they are not.
        generator: of the weights' random numbers; default torch's own.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        device: torch.device | str | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.neftune_alpha = config.neftune_alpha
        with torch.device("meta"):  # torch's own initialisation would be work for nothing
            self.model = Decoder(config)
            self.lm_head = None
            if not config.tie_word_embeddings:
                self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.rotary = RotaryTable(config)
        device = torch.get_default_device() if device is None else torch.device(device)
        if device.type != "meta":
            self.to_empty(device=device)
            initialise(self, config.initializer_range, config.num_hidden_layers, generator)

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        attention: AttentionContext,
        *,
        logits_for: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Logits of the next token.

        Args:
            input_ids: int64 [T], a packed row.
            position_ids: int64 [T], each token's position in its document.
            attention: what the tokens may attend to.
            logits_for: int64 [m], the indices in the row whose logits are wanted; default all.

        Returns:
            [T or m, vocab_size] in the dtype of the weights (under autocast, in its dtype).

        Raises:
            ModelError: rows of other shapes; on the CPU also ids or positions out of range.
        """
        hidden = self.hidden(input_ids, position_ids, attention)
        return self.head(hidden if logits_for is None else hidden.index_select(0, logits_for))

    def hidden(self, input_ids: torch.Tensor, position_ids: torch.Tensor, attention: AttentionContext) -> torch.Tensor:
        """What the head sees, after the last norm: [T, hidden_size]. Arguments as in `forward`."""
        self._check_row(input_ids, position_ids)
        x = self.model.embed_tokens(input_ids)
        if self.training and self.neftune_alpha > 0:
            x = x + self._noise(x, attention.token_lengths)
        rotation = self.rotary(position_ids, x.dtype)
        for block in self.model.layers:
            x = block(x, rotation, attention)
        return self.model.norm(x)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """[m, hidden_size] -> logits [m, vocab_size]."""
        return functional.linear(hidden, self.head_weight)

    @property
    def head_weight(self) -> nn.Parameter:
        """[vocab_size, hidden_size]: the embedding itself where they are tied."""
        return self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight

    def num_parameters(self, *, embeddings: bool = True) -> int:
        """Parameters, each counted once; without those of embedding and head if so wished."""
        skipped = {} if embeddings else {id(self.model.embed_tokens.weight), id(self.head_weight)}
        return sum(parameter.numel() for parameter in self.parameters() if id(parameter) not in skipped)

    def _noise(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        # NEFTune: uniform in [-1, 1] times alpha / sqrt(length * width), the length being the document's own.
        scale = self.neftune_alpha * (lengths * x.shape[-1]).to(x.dtype).rsqrt()
        return torch.empty_like(x).uniform_(-1, 1) * scale[:, None]

    def _check_row(self, input_ids: torch.Tensor, position_ids: torch.Tensor) -> None:
        if input_ids.dim() != 1 or position_ids.shape != input_ids.shape:
            got = f"input_ids {list(input_ids.shape)}, position_ids {list(position_ids.shape)}"
            where, hint = "input_ids, position_ids", "flatten the batch"
            raise ModelError("a row has one dimension", where=where, got=got, wanted="[T] and [T]", hint=hint)
        if input_ids.device.type == "cpu" and not torch.compiler.is_compiling():  # elsewhere it would wait
            _check_range("input_ids", input_ids, self.config.vocab_size, "the vocabulary")
            _check_range("position_ids", position_ids, self.rotary.num_positions, "the positions of this model")


def _check_range(name: str, ids: torch.Tensor, limit: int, what: str) -> None:
    if ids.numel() == 0:
        return
    low, high = (int(bound) for bound in ids.aminmax())
    if low < 0 or high >= limit:
        got = low if low < 0 else high
        wanted = f"0 to {limit - 1}"
        hint = "the tokens are another tokenizer's, or the row is longer than the model reaches"
        raise ModelError(f"{name} out of range of {what}", where=name, got=got, wanted=wanted, hint=hint)
