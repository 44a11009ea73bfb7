"""A run from start to end: plan, look at the output, execute, judge, commit.

A kill at any moment loses only the tasks in flight: the same command goes on and ends with the same bytes.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from astrai_data.build import Builder
from astrai_data.config import PipelineConfig, TokenizerSpec
from astrai_data.errors import PipelineConfigError, RunError
from astrai_data.run.execution import Execution, Progress
from astrai_data.run.lease import Lease, has_dead_lock
from astrai_data.run.occupant import check_may_go_on, find_occupant, is_finished, is_whole
from astrai_data.run.plan import RunPlan, make_plan, with_inputs
from astrai_data.run.system_errors import told_plainly
from astrai_data.store import Manifest, read_tokenizer_files
from astrai_data.tokenizer import Tokenizer, find_directory

logger = logging.getLogger("astrai")


class Pipeline:
    """Text to store.

    Args:
        config: what to do.
        inputs: paths, folders, globs or URLs, after those of the configuration.
        output: folder of the store.
        tokenizer: folder with `tokenizer.json`, or of a training run; wins over the configuration's.
    """

    def __init__(
        self,
        config: PipelineConfig,
        inputs: Sequence[str | os.PathLike[str]],
        output: str | os.PathLike[str],
        tokenizer: str | os.PathLike[str] | None = None,
    ) -> None:
        inputs = [inputs] if isinstance(inputs, str | os.PathLike) else inputs
        self.config = with_inputs(config, [os.fspath(path) for path in inputs])
        self.root = _local(os.fspath(output))
        self._tokenizer = os.fspath(tokenizer) if tokenizer is not None else None

    def plan(self, *, update: bool = False, overwrite: bool = False) -> RunPlan:
        """What the run would do; reads the inputs' edges and the output folder, writes nothing.

        Raises:
            AstraiError: what a run would fail on before its first task.
        """
        with told_plainly(self.root):
            plan = self._prepare()[2]
            self._finished(plan, update=update, overwrite=overwrite)
            _tell_passed_over(plan)
            return plan

    def run(
        self,
        workers: int = 1,
        *,
        update: bool = False,
        overwrite: bool = False,
        allow_damaged: bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> Manifest:
        """Make the store, or finish it, or find it finished.

        Args:
            workers: processes; the store does not depend on it.
            update: allow more inputs than a finished store was made from; only what is new is read.
            overwrite: replace whatever store is there; the old one stays whole until the new one is.
            allow_damaged: keep what is readable of truncated or corrupt files.
            progress: told after each task.

        Returns:
            The manifest of the finished store.

        Raises:
            PipelineConfigError, TokenizerError, InputError: bad configuration, tokenizer or input.
            RunError: the output is in use or holds something else, the outcome fails the limits, or the system refused.
            StoreError: the store that is there is damaged, or a file cannot be written.
        """
        allowed = {"update": update, "overwrite": overwrite}
        with told_plainly(self.root):
            tokenizer, tokenizer_files, plan = self._prepare()
            manifest = self._finished(plan, **allowed)
            if manifest is not None and not has_dead_lock(self.root):
                logger.info("this store is finished already: nothing to do")
                return manifest
            self.root.mkdir(parents=True, exist_ok=True)
            with Lease(self.root, executor="local", config_hash=plan.config_hash, plan_hash=plan.plan_hash) as lease:
                if (manifest := self._finished(plan, **allowed)) is not None:  # by a run that ended meanwhile
                    return manifest
                _tell_passed_over(plan)
                work = Execution(
                    self.root,
                    plan,
                    tokenizer,
                    self.tokenizer_spec,
                    lease,
                    tokenizer_files=tokenizer_files,
                    overwrite=overwrite,
                    allow_damaged=allow_damaged,
                )
                with _telling_a_stop():
                    return work.do(max(1, workers), progress or (lambda _: None))

    def _finished(self, plan: RunPlan, *, update: bool, overwrite: bool) -> Manifest | None:
        """The manifest, if the store is there already; raises unless the plan may go on in the output folder."""
        occupant = find_occupant(self.root, replaceable=overwrite)
        check_may_go_on(self.root, occupant, plan, update=update, overwrite=overwrite)
        if overwrite or not is_finished(occupant, plan) or not is_whole(self.root, occupant, plan):
            return None
        return occupant.manifest

    @property
    def tokenizer_spec(self) -> TokenizerSpec:
        """Where the tokenizer lies and which backend is asked for."""
        spec = self.config.tokenizer
        if self._tokenizer is not None:
            return TokenizerSpec(path=self._tokenizer, backend=spec.backend if spec else "auto")
        if spec is None or not spec.path:
            raise PipelineConfigError(
                "no tokenizer is given",
                where="tokenizer.path and --tokenizer",
                got="neither",
                wanted="a folder with tokenizer.json",
                hint="add --tokenizer DIR, or train one: astrai tokenizer train INPUT... -o DIR --vocab-size 16384",
            )
        return spec

    def _prepare(self) -> tuple[Tokenizer, dict[str, bytes], RunPlan]:
        self.config.check_runnable()
        directory = find_directory(self.tokenizer_spec.path)
        tokenizer, tokenizer_files = Tokenizer.from_pretrained(directory), read_tokenizer_files(directory)
        for warning in Builder(self.config, tokenizer).warnings:
            logger.warning(warning)
        plan = make_plan(self.config, tokenizer)
        _check_inside(self.root, plan)
        return tokenizer, tokenizer_files, plan


def _check_inside(root: Path, plan: RunPlan) -> None:
    """The output may lie in a folder of inputs, but its own files are no inputs; a file given twice is told."""
    inside = [file.url for file in plan.files if Path(file.url).is_relative_to(root.absolute())]
    if inside:
        raise RunError(
            "inputs lie inside the output folder",
            where=root,
            got=inside[0],
            wanted="inputs outside of it",
            hint="choose an -o beside the inputs, or name the inputs by a narrower folder or glob",
        )
    repeated = [url for url, count in Counter(file.url for file in plan.files).items() if count > 1]
    if repeated:
        logger.warning("given more than once, and read as often: %s", ", ".join(repeated[:3]))


def _tell_passed_over(plan: RunPlan) -> None:
    if plan.passed_over.names:
        logger.warning("%s", plan.passed_over)


@contextmanager
def _telling_a_stop() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        logger.warning("stopped; the same command goes on from here: finished tasks are kept")
        raise


def _named_in_utf8(output: str) -> Path:
    """Arrow takes no other names."""
    try:
        output.encode()
    except UnicodeEncodeError as error:
        raise RunError(
            "the name of the output folder is not UTF-8",
            where="--output-dir",
            got=repr(output),
            wanted="a name in UTF-8",
            hint="choose another folder; rename it afterwards if you must",
        ) from error
    return Path(output)


def _local(output: str) -> Path:
    if "://" not in output:
        return _named_in_utf8(output)
    raise RunError(
        "a store cannot be written to a URL yet",
        where="--output-dir",
        got=output,
        wanted="a folder of this machine",
        hint="write it locally and copy the folder: a store holds no absolute path",
    )
