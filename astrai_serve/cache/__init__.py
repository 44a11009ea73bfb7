"""Keys and values of served sequences, in pages."""

from astrai_serve.cache.paged_attention import PagedAttention, Span
from astrai_serve.cache.pages import PagePool
from astrai_serve.cache.storage import KeyValueStorage, bytes_per_token

__all__ = ["KeyValueStorage", "PagePool", "PagedAttention", "Span", "bytes_per_token"]
