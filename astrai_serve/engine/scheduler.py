"""Who computes what in the next step: continuous batching over pages.

A step has a budget of tokens. Every sequence that decodes gets its one token first, then pieces of prompts fill what
is left, oldest first; so a long prompt never stalls the others for longer than one budget. When pages run out, the
newest sequence gives all of its pages back and waits, to be computed again later; as the whole pool holds any one
sequence, the oldest always goes on. A waiting sequence is admitted when the pages for all that it has now are free.

Everything here runs on the engine's thread.
"""

from collections import deque
from dataclasses import dataclass

from astrai_serve.cache import PagePool
from astrai_serve.engine.sequence import Sequence


@dataclass(frozen=True)
class Chunk:
    """Tokens [begin, end) of a sequence, to be computed in this step."""

    sequence: Sequence
    begin: int
    end: int

    @property
    def completes(self) -> bool:
        """Whether the next token can be drawn after it."""
        return self.end == len(self.sequence.ids)


class Scheduler:
    """The waiting and the running sequences, and the pages they own.

    Args:
        pool: of pages.
        max_batch_size: how many sequences run at a time.
        budget: tokens a step, at least `max_batch_size`.
    """

    def __init__(self, pool: PagePool, max_batch_size: int, budget: int) -> None:
        self.pool, self.max_batch_size, self.budget = pool, max_batch_size, budget
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # oldest first
        self.num_preempted = 0

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.waiting or self.running)

    def add(self, sequence: Sequence) -> None:
        """Let it wait for its turn."""
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take it out, wherever it is, and free its pages."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self._release(sequence)

    def schedule(self) -> list[Chunk]:
        """The chunks of the next step, in the order of its rows; their pages are allocated. [] if nothing can run."""
        chunks: list[Chunk] = []
        left = self.budget
        decoding = [sequence for sequence in self.running if sequence.num_pending == 1]
        others = [sequence for sequence in self.running if sequence.num_pending != 1]
        preempted = self.num_preempted
        for sequence in decoding + others:
            left -= self._add_chunk(sequence, left, chunks)
        while left and self.num_preempted == preempted and self._can_admit():
            sequence = self.waiting.popleft()
            self.running.append(sequence)
            left -= self._add_chunk(sequence, left, chunks)
        return [chunk for chunk in chunks if chunk.sequence.pages]  # the others were preempted after their turn

    def _can_admit(self) -> bool:
        if not self.waiting or len(self.running) >= self.max_batch_size:
            return False
        return self.pool.can_allocate(self.pool.pages_for(len(self.waiting[0].ids)))

    def _add_chunk(self, sequence: Sequence, left: int, chunks: list[Chunk]) -> int:
        """Plan as much of a running sequence as fits; how many tokens that is."""
        begin = sequence.num_cached
        end = min(begin + left, len(sequence.ids))
        if end == begin or sequence not in self.running or not self._reserve(sequence, end):
            return 0
        chunks.append(Chunk(sequence, begin, end))
        return end - begin

    def _reserve(self, sequence: Sequence, num_tokens: int) -> bool:
        """Allocate pages for its first tokens, at the cost of newer sequences; False if it was itself preempted."""
        while (lacking := self.pool.pages_for(num_tokens) - len(sequence.pages)) > 0:
            if self.pool.can_allocate(lacking):
                sequence.pages += self.pool.allocate(lacking)
                break
            newest = self.running[-1]
            self._preempt(newest)
            if newest is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._release(sequence)
        self.waiting.appendleft(sequence)
        self.num_preempted += 1

    def _release(self, sequence: Sequence) -> None:
        self.pool.free(sequence.pages)
        sequence.pages, sequence.num_cached = [], 0
