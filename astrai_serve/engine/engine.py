"""The engine: a thread that steps, and the door through which other threads ask.

A step: take in what arrived, end what was cancelled, schedule, one forward, draw a token for every sequence that is
complete, tell the listeners. The thread alone touches sequences, pages and keys; `submit` and `cancel` only leave a
note for it. A failed forward ends the sequences in it, a failed draw or listener ends one, and the loop goes on.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Many
from functools import partial
from queue import SimpleQueue

import torch

from astrai_data.errors import AstraiError
from astrai_data.tokenizer import Tokenizer
from astrai_serve.cache import PagePool
from astrai_serve.engine import refusals
from astrai_serve.engine.detokenizer import new_detokenizer
from astrai_serve.engine.model_runner import ModelRunner
from astrai_serve.engine.sampling_params import SamplingParams
from astrai_serve.engine.scheduler import Chunk, Scheduler
from astrai_serve.engine.sequence import Completion, Job, Sequence, Update

IDLE_WAIT_S = 1.0
"""How long the loop sleeps without work before it shows that it is alive."""


class Engine:
    """Continuous batching over one model; a context manager that shuts down at its end.

    Args:
        runner: of the model.
        tokenizer: of the model.
        pool: the pages of the runner's storage.
        context_length: most tokens of a sequence, prompt and answer; the pool holds at least as many.
        max_batch_size: sequences that run at a time.
        max_queue: sequences that may wait.
    """

    def __init__(
        self,
        runner: ModelRunner,
        tokenizer: Tokenizer,
        pool: PagePool,
        *,
        context_length: int,
        max_batch_size: int,
        max_queue: int,
    ) -> None:
        self.runner, self.tokenizer, self.pool = runner, tokenizer, pool
        self.context_length, self.max_batch_size, self.max_queue = context_length, max_batch_size, max_queue
        self.scheduler = Scheduler(pool, max_batch_size, runner.row_counts.counts[-1])
        self.num_submitted = self.num_generated = 0
        self.beat_s = time.monotonic()
        self._stop_ids = frozenset(tokenizer.stop_ids)
        self._notes: deque[tuple[str, Sequence]] = deque()
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._loop, name="astrai-engine", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def submit(self, jobs: Iterable[Job], *, is_bounded: bool = True) -> list[Sequence]:
        """Start work on all of these, or on none; any thread. `is_bounded`: the queue may be too full for them.

        Raises:
            ContextLengthError: a prompt leaves no room for an answer.
            RequestError: a prompt is empty or has ids that the model does not know.
            QueueFullError: too many are waiting.
            EngineStoppedError: it has been shut down.
        """
        sequences = [self._sequence(job) for job in jobs]
        with self._changed:
            if not self.is_alive:
                raise refusals.stopped()
            if is_bounded:
                self.check_queue(len(sequences))
            self._notes.extend(("add", sequence) for sequence in sequences)
            self.num_submitted += len(sequences)
            self._changed.notify()
        return sequences

    def check_queue(self, count: int) -> None:
        """Raise `QueueFullError` if `count` more cannot be submitted now, `RequestError` if never; any thread."""
        if count > self.max_queue + self.max_batch_size:
            raise refusals.too_many(count, self.max_queue + self.max_batch_size)
        with self._changed:
            waiting = len(self.scheduler.waiting) + sum(what == "add" for what, _ in self._notes)
            if waiting + count > self.max_queue + max(0, self.max_batch_size - len(self.scheduler.running)):
                raise refusals.queue_full(waiting + count, self.max_queue)

    def cancel(self, sequences: Iterable[Sequence]) -> None:
        """End these at the next step; any thread. Those that have ended stay as they are."""
        with self._changed:
            self._notes.extend(("cancel", sequence) for sequence in sequences if sequence.finish_reason is None)
            self._changed.notify()

    def stream(self, prompts: Many[list[int]], params: SamplingParams) -> Iterator[tuple[int, Update, Sequence]]:
        """Answer all prompts (ids); what happens to each of them as it happens. Left early, the rest is cancelled.

        Raises:
            RequestError: as `submit`.
        """
        updates: SimpleQueue[tuple[int, Update]] = SimpleQueue()

        def put(index: int, update: Update) -> None:
            updates.put((index, update))

        jobs = [Job(prompt, params, partial(put, index)) for index, prompt in enumerate(prompts)]
        sequences = self.submit(jobs, is_bounded=False)
        try:
            left = len(sequences)
            while left:
                index, update = updates.get()
                left -= update.finish_reason is not None
                yield index, update, sequences[index]
        finally:
            self.cancel(sequences)

    def generate(self, prompts: Many[list[int]], params: SamplingParams | None = None) -> list[Completion]:
        """Answer all prompts (ids), in order; blocks.

        Raises:
            RequestError: as `submit`.
            GenerationError: one of them failed.
        """
        done: list[Completion | None] = [None] * len(prompts)
        for index, update, sequence in self.stream(prompts, params or SamplingParams()):
            if update.error is not None:
                raise refusals.failed(f"prompt {index}", update.error)
            if update.finish_reason is not None:
                done[index] = sequence.completion
        return done

    def stop(self) -> None:
        """End what is in work with the reason `abort` and take nothing more; returns at once."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()

    def shutdown(self, timeout_s: float = 10.0) -> None:
        """`stop`, and wait for the thread."""
        self.stop()
        self._thread.join(timeout_s)

    @property
    def is_alive(self) -> bool:
        """Whether the loop runs and takes work."""
        return self._thread.is_alive() and not self._is_stopping

    def _sequence(self, job: Job) -> Sequence:
        refusals.check_prompt(job.prompt_ids, self.context_length, self.runner.model.config.vocab_size)
        room = self.context_length - len(job.prompt_ids)
        limit = room if job.params.max_tokens is None else min(room, job.params.max_tokens)
        own = frozenset() if job.params.ignore_eos else self._stop_ids
        return Sequence(job, limit, own | set(job.params.stop_ids), new_detokenizer(self.tokenizer))

    def _loop(self) -> None:
        try:
            while not self._is_stopping:
                self.beat_s = time.monotonic()
                self._take_notes()
                self._step()
        finally:
            self._end_all()

    def _take_notes(self) -> None:
        with self._changed:
            if not self._notes and not self.scheduler.has_work and not self._is_stopping:
                self._changed.wait(IDLE_WAIT_S)
            notes = list(self._notes)
            self._notes.clear()
            for what, sequence in notes:
                if what == "add":
                    self.scheduler.add(sequence)
        for what, sequence in notes:
            if what == "cancel":
                self._end(sequence, "abort")
            elif sequence.limit == 0:
                self._end(sequence, "length")

    def _step(self) -> None:
        chunks = self.scheduler.schedule()
        if not chunks:
            return
        try:
            logits = self.runner.forward(chunks)
        except Exception as error:
            logging.getLogger("astrai.serve").exception("a forward failed; the requests in it end")
            for chunk in chunks:
                self._end(chunk.sequence, "error", f"the model failed: {error}")
            return
        for chunk in chunks:
            chunk.sequence.num_cached = chunk.end
        self._draw([chunk for chunk in chunks if chunk.completes], logits)

    def _draw(self, chunks: list[Chunk], logits: torch.Tensor) -> None:
        """Give every sequence its next token."""
        logits = logits.cpu()
        finite = logits.isfinite().all(-1).tolist()
        for chunk, row, is_finite in zip(chunks, logits, finite, strict=True):
            sequence = chunk.sequence
            try:
                if not is_finite:
                    raise refusals.not_finite()
                update = sequence.draw(row)
            except Exception as error:
                ours = isinstance(error, AstraiError)
                logging.getLogger("astrai.serve").error("a draw failed: %s", error, exc_info=not ours)
                self._end(sequence, "error", str(getattr(error, "what", error)))
                continue
            self.num_generated += 1
            self._tell(sequence, update)

    def _tell(self, sequence: Sequence, update: Update) -> None:
        if update.finish_reason is not None:
            self.scheduler.remove(sequence)
        try:
            sequence.job.listener(update)
        except Exception:
            logging.getLogger("astrai.serve").exception("a listener failed; its request ends")
            sequence.finish_reason = sequence.finish_reason or "abort"
            self.scheduler.remove(sequence)

    def _end(self, sequence: Sequence, reason: str, error: str | None = None) -> None:
        if sequence.finish_reason is None:
            self._tell(sequence, sequence.end(reason, error))

    def _end_all(self) -> None:
        with self._changed:
            self._is_stopping = True
            notes = [sequence for _, sequence in self._notes]
            self._notes.clear()
        for sequence in [*self.scheduler.running, *self.scheduler.waiting, *notes]:
            self._end(sequence, "abort")
