"""Rotary frequencies, plain and stretched to longer contexts.

Plain: theta_i = base^(-2i/dim) (RoPE, arXiv:2104.09864, section 3.2.2). Stretched: `linear` (arXiv:2306.15595), `ntk`
(a larger base), `llama3` (long wavelengths divided, short ones kept) and `yarn` (arXiv:2309.00071, section 3.2 and
equation 15). `dynamic` is refused: its frequencies follow the length of the moment, so keys that are already cached,
or a neighbour in a packed row, would change what a document means.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from astrai_data.config.problems import nearest, shown
from astrai_train.models.errors import ModelConfigError, NotSupportedYetError

KEYS = {
    "default": (),
    "linear": ("factor",),
    "ntk": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "truncate"),
}
"""Type -> the keys it reads. For `llama3` all are needed."""
ORIGINAL = "original_max_position_embeddings"


@dataclass(frozen=True)
class RopeScaling:
    """One way of stretching. `values` holds the keys of the configuration that this kind reads."""

    kind: str = "default"
    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any] | None) -> "RopeScaling":
        """Of a configuration's `rope_scaling`; without a type it is `ntk`, as it always was.

        Raises:
            ModelConfigError: an unknown type or key, a value that is no positive number, a key that is missing.
        """
        raw = {key: value for key, value in (raw or {}).items() if value is not None}
        kind = _kind(raw)
        values = {key: value for key, value in raw.items() if key not in ("type", "rope_type", "finetuned")}
        for key, value in values.items():
            _check_value(kind, key, value)
        if kind == "llama3" and (missing := [key for key in KEYS[kind] if key not in values]):
            got, wanted = f"the keys {', '.join(values) or 'none'}", ", ".join(KEYS[kind])
            raise _error("a key is missing", f"rope_scaling.{missing[0]}", got, wanted, f"add {missing[0]}")
        return cls(kind, values)

    @property
    def factor(self) -> float:
        """How many times longer contexts become."""
        return float(self.values.get("factor", 1.0))

    @property
    def attention_factor(self) -> float:
        """What cosine and sine are multiplied by: 1 but for `yarn`, where it is 0.1 ln(factor) + 1."""
        if self.kind != "yarn":
            return 1.0
        return float(self.values.get("attention_factor", 0.1 * math.log(max(self.factor, 1.0)) + 1.0))

    def num_positions(self, max_position_embeddings: int) -> int:
        """Positions that can be used; a file that names the original length gives the stretched one already."""
        if ORIGINAL in self.values:
            return max(max_position_embeddings, int(self.values[ORIGINAL]))
        return math.ceil(max_position_embeddings * max(self.factor, 1.0))

    def frequencies(self, dim: int, base: float, max_position_embeddings: int) -> list[float]:
        """Radians per position of each of the dim/2 pairs, fastest first."""
        if self.kind == "ntk":
            base *= self.factor ** (dim / (dim - 2))
        plain = [base ** (-2 * pair / dim) for pair in range(dim // 2)]
        if self.kind == "linear":
            return [theta / self.factor for theta in plain]
        if self.kind == "llama3":
            return [self._llama3(theta) for theta in plain]
        if self.kind == "yarn":
            return self._yarn(plain, base, int(self.values.get(ORIGINAL, max_position_embeddings)))
        return plain

    def _llama3(self, theta: float) -> float:
        low, high, original = (float(self.values[key]) for key in ("low_freq_factor", "high_freq_factor", ORIGINAL))
        turns = original * theta / (2 * math.pi)  # within the original context
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        return (1 - kept) * theta / self.factor + kept * theta

    def _yarn(self, plain: list[float], base: float, original: int) -> list[float]:
        dim = 2 * len(plain)

        def pair_that_turns(times: float) -> float:
            return dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(base))

        low, high = (pair_that_turns(self.values.get(*key)) for key in (("beta_fast", 32), ("beta_slow", 1)))
        if self.values.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        width = max(high - low, 0.001)
        stretched = [min(max((pair - low) / width, 0.0), 1.0) for pair in range(len(plain))]
        return [theta * (1 - part) + theta / self.factor * part for theta, part in zip(plain, stretched, strict=True)]


def _kind(raw: Mapping[str, Any]) -> str:
    kind = raw.get("rope_type", raw.get("type", "ntk" if raw else "default"))
    if kind in ("dynamic", "longrope"):
        raise NotSupportedYetError(
            f"{kind} scaling of rotary positions: not supported yet",
            where="rope_scaling",
            got=shown(kind),
            wanted="one of " + ", ".join(KEYS),
            hint="take another model, or leave rope_scaling out for contexts of the trained length",
        )
    if kind not in KEYS:
        wanted = "one of " + ", ".join(KEYS)
        hint = nearest(kind, KEYS) or "leave rope_scaling out for none"
        raise _error("unknown scaling of rotary positions", "rope_scaling", shown(kind), wanted, hint)
    return kind


def _check_value(kind: str, key: str, value: Any) -> None:
    where = f"rope_scaling.{key}"
    if key not in KEYS[kind] and not (kind == "default" and key == "factor"):
        wanted = "one of " + ", ".join(("rope_type", *KEYS[kind]))
        hint = nearest(key, KEYS[kind]) or "take it out"
        raise _error(f"unknown key for {kind} scaling", where, shown(value), wanted, hint)
    if key == "truncate":
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise _error(
            "wrong value", where, shown(value), "a positive number", "4.0 for contexts of four times the length"
        )


def _error(what: str, where: str, got: str, wanted: str, hint: str) -> ModelConfigError:
    return ModelConfigError(what, where=where, got=got, wanted=wanted, hint=hint)
