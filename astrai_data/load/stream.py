"""The batches of one rank, made here: samples and a schedule, together a pure function of the cursor.

Whoever reads a stream, this process or any number of workers, reads the same batches. It knows nothing of torch and
pickles as addresses and numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from astrai_data.load.batch import IGNORED, Batch
from astrai_data.load.rows import PackedRows
from astrai_data.load.schedule import Cursor, Schedule, Share
from astrai_data.load.windows import FlatWindows


@dataclass(frozen=True)
class BatchStream:
    """What is read, and in which steps."""

    samples: PackedRows | FlatWindows
    schedule: Schedule

    def batches(self, cursor: Cursor, first: int = 0, every: int = 1) -> Iterator[Batch]:
        """The batches from `cursor` on, without end: the `first` and then `every` so manieth."""
        return map(self._read, islice(self.schedule.shares(cursor), first, None, every))

    def _read(self, share: Share) -> Batch:
        batch = self.samples.read(share.samples)
        if not share.live:
            batch.labels.fill(IGNORED)
        return batch
