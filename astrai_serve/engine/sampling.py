"""From logits to tokens.

Order: penalties, temperature, top-k, top-p, min-p, softmax, one draw. Every step is a pure function over [..., V] in
float32; none touches its argument. The draw inverts the cumulative distribution at a number that depends on (seed,
choice, step) alone, so an answer can be repeated whatever else is served, and after it was interrupted.
"""

from dataclasses import dataclass

import numpy as np
import torch

from astrai_serve.engine.sampling_params import SamplingParams

FILTERED = -torch.inf


@dataclass(frozen=True)
class Sampled:
    """A token and its log-probability under the distribution it was drawn from (greedy: under the penalised logits)."""

    token: int
    logprob: float


def sample(
    logits: torch.Tensor, params: SamplingParams, history: torch.Tensor | None = None, uniform: float = 0.0
) -> Sampled:
    """One token for one sequence.

    Args:
        logits: [V].
        params: of the request.
        history: int64 [n], the tokens that penalties count.
        uniform: in [0, 1), where the cumulative distribution is inverted; not used when greedy.
    """
    logits = penalise(logits, params, history)
    if params.is_greedy:
        token = int(logits.argmax())
        return Sampled(token, float(logits.log_softmax(-1)[token]))
    logits = filter_logits(logits, params)
    token = draw(logits, uniform)
    return Sampled(token, float(logits.log_softmax(-1)[token]))


def filter_logits(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Temperature, top-k, top-p and min-p of the request, in this order."""
    logits = apply_temperature(logits, params.temperature)
    for apply, value in ((keep_top_k, params.top_k), (keep_top_p, params.top_p), (keep_min_p, params.min_p)):
        logits = apply(logits, value)
    return logits


def penalise(logits: torch.Tensor, params: SamplingParams, history: torch.Tensor | None) -> torch.Tensor:
    """Logits [V] in float32 after the penalties for the tokens of `history` int64 [n].

    With c the count of a token: z -> z / r if z > 0 else z * r, where c > 0 (CTRL, arXiv:1909.05858, section 4.1);
    then z - frequency * c - presence * [c > 0] (OpenAI's API reference).
    """
    logits = logits.float()
    if not params.has_penalty or history is None or not len(history):
        return logits
    counts = torch.bincount(history.to(logits.device), minlength=logits.shape[-1])[: logits.shape[-1]].float()
    seen = counts > 0
    repeated = torch.where(logits > 0, logits / params.repetition_penalty, logits * params.repetition_penalty)
    logits = torch.where(seen, repeated, logits)
    return logits - params.frequency_penalty * counts - params.presence_penalty * seen


def apply_temperature(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Logits [..., V] divided by `temperature`, which is at least 1e-8 here."""
    return logits.float() / max(temperature, 1e-8)


def keep_top_k(logits: torch.Tensor, k: int) -> torch.Tensor:
    """Logits [..., V] with all below the k-th largest filtered; ties with it stay; 0: unchanged."""
    if k <= 0 or k >= logits.shape[-1]:
        return logits
    threshold = logits.topk(k, -1).values[..., -1:]
    return logits.masked_fill(logits < threshold, FILTERED)


def keep_top_p(logits: torch.Tensor, p: float) -> torch.Tensor:
    """Logits [..., V] with only the nucleus kept (arXiv:1904.09751, section 3.1).

    In descending order the token at j stays where j = 0 or the sum of those before it does not exceed p; so the first
    that makes the sum exceed p is kept. Equal logits stand in order of their ids. 1: unchanged.
    """
    if p >= 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    before = ordered.softmax(-1).cumsum(-1).roll(1, -1)
    before[..., 0] = -1.0
    kept = ordered.masked_fill(before > p, FILTERED)
    return torch.empty_like(logits).scatter_(-1, order, kept)


def keep_min_p(logits: torch.Tensor, min_p: float) -> torch.Tensor:
    """Logits [..., V] with tokens less probable than `min_p` times the most probable one filtered; 0: unchanged."""
    if min_p <= 0:
        return logits
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + float(np.log(min_p)), FILTERED)


def draw(logits: torch.Tensor, uniform: float) -> int:
    """The token at `uniform` of the cumulative distribution of logits [V], summed in float64 in order of the ids."""
    cumulative = logits.double().softmax(-1).cumsum(-1)
    token = int(torch.searchsorted(cumulative, uniform * float(cumulative[-1]), right=True))
    return min(token, int(logits.isfinite().nonzero()[-1]))  # rounding may put the number at the very end


def uniform_at(seed: int, choice: int, step: int) -> float:
    """The number in [0, 1) for one token: counter-based (Philox, Salmon et al. 2011), so any step can be asked for."""
    bits = np.random.Philox(key=np.array([seed, choice], np.uint64), counter=step)
    return float(np.random.Generator(bits).random())
