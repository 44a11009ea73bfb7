"""A text file is one record with the field `text`, at position 0; a byte order mark is not part of it."""

from collections.abc import Iterable, Sequence

import numpy as np

from astrai_data.records.chunk import RAW_BYTES, RecordChunk, Reject, WantedField, empty_chunk
from astrai_data.records.columns import build_chunk
from astrai_data.records.framing import BOM, PendingRecord, too_large
from astrai_data.records.json_lines import describe_utf8


def read_text(blocks: Iterable[bytes], wanted: Sequence[WantedField], max_record_bytes: int) -> RecordChunk:
    """The one record, or the one reject, that the plain `blocks` of a file make; an empty file is an empty text."""
    pending = PendingRecord(max_record_bytes)
    for block in blocks:
        pending.add(block)
    size, raw = pending.size, pending.take()
    if size > max_record_bytes:
        return empty_chunk(wanted, [too_large(0, size, raw, max_record_bytes)])
    try:
        text = raw.decode().removeprefix(BOM.decode())
    except UnicodeDecodeError as error:
        return empty_chunk(wanted, [Reject(0, size, "invalid_utf8", describe_utf8(raw, error), raw[:RAW_BYTES])])
    return build_chunk([{"text": text}], np.zeros(1, np.int64), lambda _: raw, wanted)
