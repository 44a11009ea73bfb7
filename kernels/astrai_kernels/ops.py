"""The operators `astrai::attention_varlen` and `astrai::rotary`: schema, fake implementation, gradients.

They are torch operators, so `torch.compile`, export and fake tensors see through them; which path computes is decided
inside, call by call (`dispatch`). Gradients come from the torch path for now, also where the forward is compiled.
"""

import math
from collections.abc import Sequence

import torch

from astrai_kernels import arguments, dispatch, torch_path


def attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
    *,
    scale: float | None = None,
    causal: bool = True,
    backend: str | None = None,
) -> torch.Tensor:
    """Attention inside each segment of a packed row.

    Args:
        q: [T, Hq, D], float32, bfloat16, float16 or float64.
        k: [T, Hkv, D], with Hq a multiple of Hkv; query head h reads key-value head h // (Hq // Hkv).
        v: [T, Hkv, D].
        cu_seqlens: int32 [n + 1], from 0, never falling: segment i is tokens cu_seqlens[i] up to cu_seqlens[i + 1].
            Empty segments are fine. Tokens past the last border belong to no segment: their output is exactly 0.
        max_seqlen: at least the tokens of the longest segment.
        scale: of the scores before softmax; None or 0: 1/sqrt(D).
        causal: a token sees itself and what is before it, else the whole segment.
        backend: `torch`, `cpu` or `auto`; None: what ASTRAI_KERNELS says, else `auto`.

    Returns:
        [T, Hq, D] of q's dtype, dense. Under autocast all three are first cast to its dtype.

    Raises:
        KernelArgumentError: an argument that does not fit.
        KernelError: `backend="cpu"` and the compiled kernel cannot take the call.
    """
    if torch.is_autocast_enabled(q.device.type):
        q, k, v = (x.to(torch.get_autocast_dtype(q.device.type)) for x in (q, k, v))
    resolved = arguments.resolve_scale(scale, q.shape[-1])
    return _attention_varlen(q, k, v, cu_seqlens, max_seqlen, resolved, causal, backend or "")


def rotary(
    x: torch.Tensor | Sequence[torch.Tensor],
    cos: torch.Tensor,
    sin: torch.Tensor,
    layout: str = "half",
    *,
    positions: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Rotary position embedding (Su et al. 2021, RoFormer, equation 34).

    Args:
        x: [..., H, D] with D even, or several such, (q, k), which may differ in H. The last axis of a slice of a fused
            projection needs no copy.
        cos: [..., P] with the leading axes of x; pair t turns by the angle whose cosine is cos[..., t]. P may be less
            than D / 2: the elements past 2 P are copied.
        sin: as cos. No gradient flows to the tables.
        layout: which elements are pair t: `half`: t and t + P, as Hugging Face's Llama; `interleaved`: 2t and 2t + 1.
        positions: int64 [...], the leading axes of x: cos and sin are then tables [rows, P] to look up in.
        backend: as in `attention_varlen`.

    Returns:
        As x: one tensor, or a tuple of them. Turned in float32 (float64 for float64), rounded once.

    Raises:
        KernelArgumentError: an argument that does not fit.
        KernelError: `backend="cpu"` and the compiled kernel cannot take the call.
    """
    if cos.requires_grad or sin.requires_grad:
        arguments.refuse("cos", "a table that requires grad", "constants: no gradient flows to cos and sin")
    several = [x] if isinstance(x, torch.Tensor) else list(x)
    for one in several:
        _check_leading(one, cos, positions)
    if positions is None:
        cos, sin = (table.reshape(math.prod(table.shape[:-1]), table.shape[-1]) for table in (cos, sin))
    else:
        positions = positions.reshape(-1)
    flat = [one.reshape(math.prod(one.shape[:-2]), *one.shape[-2:]) for one in several]
    turned = _rotary(flat, cos, sin, positions, layout, backend or "")
    shaped = tuple(one.view(as_.shape) for one, as_ in zip(turned, several, strict=True))
    return shaped[0] if isinstance(x, torch.Tensor) else shaped


def _check_leading(x: torch.Tensor, cos: torch.Tensor, positions: torch.Tensor | None) -> None:
    name, leading = ("cos", cos.shape[:-1]) if positions is None else ("positions", positions.shape)
    if x.dim() < 2 or leading != x.shape[:-2]:
        arguments.refuse(name, f"leading axes {tuple(leading)}", f"those of x, {tuple(x.shape[:-2])}")


@torch.library.custom_op("astrai::attention_varlen", mutates_args=())
def _attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
    scale: float,
    causal: bool,
    backend: str,
) -> torch.Tensor:
    arguments.check_attention(q, k, v, cu_seqlens)
    borders = arguments.segment_borders(cu_seqlens, q.shape[0], max_seqlen)
    if dispatch.choose("attention_varlen", q, backend).backend == "cpu":
        q, k, v = (dispatch.with_dense_rows(x) for x in (q, k, v))
        return torch.ops.astrai_native.attention_varlen(q, k, v, cu_seqlens.contiguous(), scale, causal)
    return torch_path.attention_varlen(q, k, v, borders, scale, causal)


@_attention_varlen.register_fake
def _(q, k, v, cu_seqlens, max_seqlen, scale, causal, backend):
    arguments.check_attention(q, k, v, cu_seqlens)
    return q.new_empty(q.shape)


@torch.library.custom_op("astrai::attention_varlen_backward", mutates_args=())
def _attention_varlen_backward(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens: torch.Tensor,
    scale: float,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch_path.attention_varlen_backward(grad, q, k, v, cu_seqlens.tolist(), scale, causal)


@_attention_varlen_backward.register_fake
def _(grad, q, k, v, cu_seqlens, scale, causal):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save_attention(ctx, inputs, output) -> None:
    *tensors, _, ctx.scale, ctx.causal, _ = inputs
    ctx.save_for_backward(*tensors)


def _attention_gradients(ctx, grad):
    grads = _attention_varlen_backward(grad, *ctx.saved_tensors, ctx.scale, ctx.causal)
    return *grads, None, None, None, None, None


_attention_varlen.register_autograd(_attention_gradients, setup_context=_save_attention)


@torch.library.custom_op("astrai::rotary", mutates_args=())
def _rotary(
    x: list[torch.Tensor],
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | None,
    layout: str,
    backend: str,
) -> list[torch.Tensor]:
    arguments.check_position_values(positions, cos.shape[0])
    return [_turn(one, cos, sin, positions, layout, backend) for one in x]


def _turn(x, cos, sin, positions, layout, backend) -> torch.Tensor:
    arguments.check_rotary(x, cos, sin, positions, layout)
    if dispatch.choose("rotary", x, backend).backend == "torch":
        return torch_path.rotary(x, cos, sin, positions, layout)
    cos, sin = (table.float().contiguous() for table in (cos, sin))
    positions = None if positions is None else positions.contiguous()
    return torch.ops.astrai_native.rotary(dispatch.with_dense_rows(x), cos, sin, positions, layout == "interleaved")


@_rotary.register_fake
def _(x, cos, sin, positions, layout, backend):
    for one in x:
        arguments.check_rotary(one, cos, sin, positions, layout)
    return [one.new_empty(one.shape) for one in x]


def _save_tables(ctx, inputs, output) -> None:
    _, *tables, ctx.layout, ctx.backend = inputs
    ctx.save_for_backward(*tables)


def _turn_back(ctx, grads):
    cos, sin, positions = ctx.saved_tensors
    return _rotary(grads, cos, -sin, positions, ctx.layout, ctx.backend), None, None, None, None, None


_rotary.register_autograd(_turn_back, setup_context=_save_tables)
