"""What a user may choose of an engine."""

from dataclasses import dataclass

from astrai_data.config.problems import nearest
from astrai_serve.errors import ServeError

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class EngineOptions:
    """What a user may choose.

    Attributes:
        device: `auto`, or a torch device.
        dtype: `auto` (float32 on a CPU, else bfloat16), `float32`, `bfloat16`, `float16`.
        context_length: most tokens of a sequence; None: what the model knows.
        max_batch_size: sequences that run at a time.
        page_size: tokens a page.
        cache_tokens: tokens that the cache holds; None: a full context for every running sequence, or half of the
            free memory if that is less.
        max_queue: sequences that may wait.

    Raises:
        ServeError: no such dtype.
    """

    device: str = "auto"
    dtype: str = "auto"
    context_length: int | None = None
    max_batch_size: int = 16
    page_size: int = 16
    cache_tokens: int | None = None
    max_queue: int = 256

    def __post_init__(self) -> None:
        if self.dtype != "auto" and self.dtype not in DTYPES:
            wanted, hint = "auto, " + ", ".join(DTYPES), nearest(self.dtype, DTYPES) or "auto"
            raise ServeError("unknown dtype", where="--dtype", got=self.dtype, wanted=wanted, hint=hint)
