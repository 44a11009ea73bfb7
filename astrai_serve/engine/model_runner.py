"""One forward: chunks of several sequences in, the logits that follow them out."""

from collections.abc import Sequence as Many

import torch

from astrai_serve.cache import KeyValueStorage, PagedAttention, Span
from astrai_serve.engine.row_counts import RowCounts
from astrai_serve.engine.scheduler import Chunk
from astrai_train.models import Transformer


class ModelRunner:
    """A model and the keys and values it has computed.

    Args:
        model: in evaluation mode from here on.
        storage: for `page_size`-token pages.
        page_size: tokens a page.
        row_counts: numbers of rows a forward may have.
        num_ids: ids that may be drawn: 0 to this, exclusive. A vocabulary may be padded beyond the tokenizer's.
    """

    def __init__(
        self, model: Transformer, storage: KeyValueStorage, page_size: int, row_counts: RowCounts, num_ids: int
    ) -> None:
        self.model, self.storage, self.page_size = model.eval(), storage, page_size
        self.row_counts, self.num_ids = row_counts, num_ids
        self.device = model.head_weight.device

    @torch.inference_mode()
    def forward(self, chunks: Many[Chunk]) -> torch.Tensor:
        """Compute the chunks, whose pages are allocated, and keep their keys and values.

        Returns:
            [m, num_ids] logits in float32, one row for each chunk that `completes`, in their order.
        """
        num_rows = self.row_counts.padded(sum(chunk.end - chunk.begin for chunk in chunks))
        ids = [token for chunk in chunks for token in chunk.sequence.ids[chunk.begin : chunk.end]]
        positions = [position for chunk in chunks for position in range(chunk.begin, chunk.end)]
        hidden = self.model.hidden(
            self._padded(ids, num_rows), self._padded(positions, num_rows), self._attention(chunks, num_rows)
        )
        last = _last_rows(chunks)
        if not last:
            return hidden.new_empty((0, self.num_ids), dtype=torch.float32)
        wanted = self._padded(last, self.row_counts.padded(len(last)))
        return self.model.head(hidden.index_select(0, wanted))[: len(last), : self.num_ids].float()

    def _attention(self, chunks: Many[Chunk], num_rows: int) -> PagedAttention:
        spans = [Span(chunk.sequence.pages, chunk.begin, chunk.end) for chunk in chunks]
        return PagedAttention(self.storage, self.page_size, spans, self.row_counts.counts, num_rows)

    def _padded(self, values: list[int], length: int) -> torch.Tensor:
        return torch.tensor(values + [0] * (length - len(values)), device=self.device)


def _last_rows(chunks: Many[Chunk]) -> list[int]:
    """The row of the last token of each chunk that completes its sequence."""
    rows, row = [], 0
    for chunk in chunks:
        row += chunk.end - chunk.begin
        if chunk.completes:
            rows.append(row - 1)
    return rows
