"""The training loop: steps, evaluations, checkpoints, until the run's end or a wish to stop.

A checkpoint is taken between two steps, after the update, and holds all that the next step depends on: weights,
moments, random numbers, the place in the data, the number of steps (the learning rate is a function of it). So a run
that was stopped and goes on computes the same bits as one that was not, on one device with the same threads. A signal
is heard before each micro-batch: the step under way is undone as if it had never begun.

The loss is brought to the host once a step, to be looked at before the weights are changed.
"""

import math
import time
from collections.abc import Iterable
from itertools import islice, takewhile
from pathlib import Path

import torch

from astrai_data.load import LoadError
from astrai_train.callbacks import notify
from astrai_train.checkpoint.optimizer_state import optimizer_tensors, restore_optimizer
from astrai_train.checkpoint.random_state import random_state, restore_random_state, seed_all
from astrai_train.checkpoint.resume import FORMAT, VERSION, SavedRun
from astrai_train.checkpoint.tokenizer_files import tokenizer_files
from astrai_train.checkpoint.write import Snapshot, delete_old, write_checkpoint
from astrai_train.errors import NonFiniteError
from astrai_train.optim import build_adamw, clip_gradient, gradient_norm
from astrai_train.plan import Plan
from astrai_train.report import FINISHED, Outcome, StepReport
from astrai_train.step import accumulate_gradient, mean_loss
from astrai_train.stop import INTERRUPTED, OUT_OF_TIME, InterruptedStepError, Stop
from astrai_train.strategies import TokenBatch


class Trainer:
    """Trains by a plan.

    Attributes:
        plan: what to do.
        model, optimizer, loader: as they stand.
        callbacks: called in order; see `astrai_train.callbacks`.
        step, num_batches, tokens, seconds: done since the run's begin.
        newest: the newest checkpoint; None: there is none yet.

    Args:
        plan: from `make_plan`; with a saved run, training goes on from it.
        callbacks: the first ones.
    """

    def __init__(self, plan: Plan, callbacks: Iterable[object] = ()) -> None:
        self.plan, self.callbacks = plan, list(callbacks)
        self.output = Path(plan.config.output_dir)
        self.step = self.num_batches = self.tokens = 0
        self.seconds = 0.0
        seed_all(plan.config.seed)
        self.model = plan.model.build(plan.config.seed, plan.precision.device)
        self.optimizer = build_adamw(self.model, lr=plan.lr, weight_decay=plan.config.weight_decay)
        self.loader = plan.loader()
        self._loss, self._schedule = plan.loss(), plan.schedule()
        self._tokenizer = tokenizer_files(plan.store)
        self.newest: Path | None = None
        self._stop = Stop(plan.config.max_seconds)
        self._began, self._saved_s = self.step, time.monotonic()
        if plan.saved:
            self._restore(plan.saved)

    def run(self) -> Outcome:
        """Train to the end, or until a signal or the time limit; ends with a checkpoint, if with no error.

        Raises:
            NonFiniteError: a loss or gradient that is no number.
            AstraiError: data that cannot be read, or a checkpoint that cannot be written.
        """
        outcome = None
        with self._stop:
            try:
                notify(self.callbacks, "on_train_begin", self)
                last = self._steps()
                self.save()
                reason = FINISHED if self.step >= self.plan.total_steps else self._stop.reason()
                outcome = Outcome(reason, self.step, self.newest, last)
            finally:
                self.loader.close()
                notify(self.callbacks, "on_train_end", self, outcome)
        return outcome

    def _steps(self) -> StepReport | None:
        last = None
        try:
            while self.step < self.plan.total_steps and self._stop.reason() is None:
                last = self.next_step()
        except (InterruptedStepError, LoadError):  # a signal to the whole process group ends the loader's workers too
            if not self._is_interrupted():
                raise
        return last

    def seconds_left(self) -> float:
        """Until the run's end or the time limit, by the speed so far."""
        steps_left = self.plan.total_steps - self.step
        by_speed = steps_left * (time.monotonic() - self._begin_s) / max(1, self.step - self._began)
        limit = self._stop.seconds_left()
        return by_speed if limit is None else min(by_speed, limit)

    def next_step(self) -> StepReport:
        """Train one step, and do what is due after it: evaluate, report, write a checkpoint."""
        if self.step == self._began:
            self._begin_s = time.monotonic()
        values = self._one_step()
        config = self.plan.config
        is_last = self.step == self.plan.total_steps or self._stop.reason() == OUT_OF_TIME
        evaluate = self.plan.validation and (is_last or _is_due(self.step, config.validate_every))
        report = StepReport(**values, val_loss=self._validate() if evaluate else None)
        notify(self.callbacks, "on_step_end", self, report)
        if _is_due(self.step, config.checkpoint_every) or self._is_late():
            self.save()
        return report

    def _is_late(self) -> bool:
        limit = self.plan.config.checkpoint_seconds
        return limit is not None and time.monotonic() - self._saved_s >= limit

    def _one_step(self) -> dict:
        begin_s, place = time.perf_counter(), self.loader.state_dict()
        random = random_state(self.plan.precision.device)
        window = self.plan.length.window(self.num_batches)
        lr = self._schedule.at(self.step)
        try:
            batches = [self._fetch() for _ in range(window)]
            loss, norm = self._update(batches, lr, place)
        except (InterruptedStepError, LoadError):
            self._undo(place, *random)
            raise
        seconds = time.perf_counter() - begin_s
        num_tokens = sum(batch.num_tokens for batch in batches)
        self.step += 1
        self.num_batches += window
        self.tokens += num_tokens
        self.seconds += seconds
        return {
            "step": self.step,
            "epoch": self.plan.length.epoch(self.num_batches),
            "tokens": self.tokens,
            "labels": sum(batch.num_labels for batch in batches),
            "loss": loss,
            "lr": lr,
            "grad_norm": norm,
            "tokens_per_s": round(num_tokens / seconds, 1),
            "seconds": round(self.seconds, 3),
        }

    def _fetch(self) -> TokenBatch:
        self._stop.check()
        return self._loss.prepare(next(self.loader))

    def _undo(self, place: dict, *random: dict) -> None:
        """Forget a step that was begun: it has consumed no data, drawn no random numbers and left no gradient."""
        self.loader.load_state_dict(place)
        restore_random_state(*random, self.plan.precision.device)
        self.optimizer.zero_grad(set_to_none=True)

    def _update(self, batches: list[TokenBatch], lr: float, place: dict) -> tuple[float, float]:
        """Update the weights, unless there is no label: that would only decay them. (loss, norm of the gradient)."""
        loss = accumulate_gradient(self.model, self._loss, batches, self.plan.precision, self._stop.check)
        if not any(batch.num_labels for batch in batches):
            return 0.0, 0.0
        parameters = list(self.model.parameters())
        norm = gradient_norm(parameters)
        values = torch.stack([loss, norm.to(loss.dtype)]).tolist()
        if not all(map(math.isfinite, values)):
            raise self._not_finite(*values, place)
        clip_gradient(parameters, self.plan.config.clip, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return values[0], values[1]

    def _not_finite(self, loss: float, norm: float, place: dict) -> NonFiniteError:
        where = f"step {self.step + 1}, epoch {place['epoch']}, from sample {place['position']} of its order on"
        return NonFiniteError(
            "training went wrong: the loss or its gradient is no finite number; the weights were not changed",
            where=where,
            got=f"loss {loss}, gradient norm {norm}",
            wanted="finite numbers",
            hint="train with a lower --lr, a longer --warmup or --dtype float32; earlier checkpoints are whole",
        )

    def _validate(self) -> float | None:
        """The loss over the validation split; None also where a signal came before its end."""
        loader = self.plan.validation_loader()
        wanted = takewhile(lambda _: not self._is_interrupted(), islice(loader, loader.batches_per_epoch))
        batches, limit = map(self._loss.prepare, wanted), self.plan.config.validation_tokens
        loss = mean_loss(self.model, self._loss, batches, self.plan.precision, limit)
        return None if self._is_interrupted() else loss

    def _is_interrupted(self) -> bool:
        return self._stop.reason() == INTERRUPTED

    def save(self) -> None:
        """Write a checkpoint, unless there is one of this very step."""
        length, config = self.plan.length, self.plan.config
        if self.newest is not None and self._saved_step == self.step:
            return
        random, others = random_state(self.plan.precision.device)
        snapshot = Snapshot(
            step=self.step,
            epoch=length.epoch(self.num_batches),
            model=self.model,
            tokenizer=self._tokenizer,
            optimizer=optimizer_tensors(self.optimizer, self.model),
            random=random,
            state=self._state() | {"random": others},
            settings=config.to_dict(),
        )
        self.newest, self._saved_step = write_checkpoint(self.output, snapshot), self.step
        self._saved_s = time.monotonic()
        delete_old(self.output, config.keep)
        notify(self.callbacks, "on_checkpoint", self, self.newest)

    def _state(self) -> dict:
        """What a checkpoint says in `training/state.json`, but for random numbers."""
        store = self.plan.store
        return {
            "format": FORMAT,
            "version": VERSION,
            "step": self.step,
            "num_batches": self.num_batches,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "strategy": self.plan.strategy,
            "optimizer": "adamw",
            "schedule": {"name": "cosine"} | vars(self._schedule),
            "data": self.loader.state_dict(),
            "stores": [{"name": store.root.name, "store_id": store.store_id}],
        }

    def _restore(self, saved: SavedRun) -> None:
        state = saved.state
        restore_optimizer(self.optimizer, self.model, saved.optimizer(), saved.path)
        self.loader.load_state_dict(state["data"])
        self.step, self.num_batches = state["step"], state["num_batches"]
        self.tokens, self.seconds = state["tokens"], state["seconds"]
        self._began, self.newest, self._saved_step = self.step, saved.path, self.step
        restore_random_state(saved.random(), state["random"], self.plan.precision.device)


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
