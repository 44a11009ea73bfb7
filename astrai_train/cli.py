"""`astrai train`: token stores in, checkpoints out.

The options are made from `TrainConfig`: a key of the configuration is an option of the same name, and both are checked
by the same schema. Later wins: defaults, the checkpoint's settings (with `--resume`), the file, the options.
"""

import inspect
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from astrai_data.inspect.numbers import counted
from astrai_train.config import BATCH_SIZES, REQUIRED, UNSAVED, TrainConfig, check_settings, read_settings
from astrai_train.errors import TrainConfigError
from astrai_train.few_steps import is_few

if TYPE_CHECKING:
    from astrai_train.plan import Plan
    from astrai_train.report import Outcome
    from astrai_train.trainer import Trainer

INTERRUPTED = 130
SHORT = {"output_dir": "-o"}

Config = Annotated[Path | None, typer.Option("--config", "-c", help="JSON file with the settings below.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint in the output folder.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, say what would be done, write nothing.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]


def command(
    config: Config = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Train a model on a token store.

    Ctrl-C stops with a checkpoint of the last whole step; `--resume` goes on from it and ends with the same weights.
    """
    _set_up_logging(verbose, quiet)
    settings = _settings(config, resume, {key: value for key, value in options.items() if value is not None})
    from astrai_train.run import plan_run, train

    if dry_run:
        _print_plan(plan_run(settings, resume=resume))
        print("nothing was written", file=sys.stderr)
        return
    outcome = train(settings, resume=resume, callbacks=[] if quiet else [_Announcer(), _progress()])
    if not quiet:
        _print_outcome(outcome, settings)
    if outcome.reason == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _settings(file: Path | None, resume: bool, options: dict[str, Any]) -> TrainConfig:
    _check_options(options)
    given = (read_settings(file) if file else {}) | options
    if resume and "output_dir" in given:
        given = _saved_settings(Path(given["output_dir"]), given) | given
    if missing := [key for key in REQUIRED if key not in given]:
        names = ", ".join(f"--{key.replace('_', '-')}" for key in missing)
        where = (
            f"; {given['output_dir']} has no checkpoint to take them from" if resume and "output_dir" in given else ""
        )
        raise typer.BadParameter(f"missing: {names}; give them here or in the file of --config{where}")
    return TrainConfig.from_dict(given)


def _check_options(options: dict[str, Any]) -> None:
    try:
        check_settings(options)
    except TrainConfigError as error:
        raise typer.BadParameter(str(error)) from None


def _saved_settings(output: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint's; a size of a batch that is given takes the place of whichever it has."""
    from astrai_train.checkpoint.resume import saved_settings
    from astrai_train.output_folder import check_folder

    check_folder(output, resume=True)
    left_out = {*UNSAVED, *(BATCH_SIZES if given.keys() & {*BATCH_SIZES} else ())}
    return {key: value for key, value in saved_settings(output).items() if key not in left_out}


def _set_up_logging(verbose: bool, quiet: bool) -> None:
    logging.basicConfig(format="%(message)s")
    logging.getLogger("astrai").setLevel(logging.ERROR if quiet else logging.INFO)
    for package in ("astrai_train", "astrai_data", "astrai_kernels"):
        logging.getLogger(package).setLevel(logging.INFO if verbose else logging.ERROR if quiet else logging.WARNING)


class _Announcer:
    """Says what will be done, when it is about to be done."""

    def on_train_begin(self, trainer: "Trainer") -> None:
        _print_plan(trainer.plan)


def _progress() -> object:
    from astrai_train.callbacks import ProgressBar, ProgressLines

    return ProgressBar() if sys.stderr.isatty() else ProgressLines()


def _print_plan(plan: "Plan") -> None:
    for subject, words in plan.described():
        print(f"{subject:<9} {words}", file=sys.stderr, flush=True)


def _print_outcome(outcome: "Outcome", config: TrainConfig) -> None:
    few = f", after {counted(outcome.step, 'step')} only: see the warning above"
    how = {
        "finished": f"finished{few if is_few(outcome.step, config) else ''}",
        "interrupted": "interrupted; --resume goes on from here",
        "max_seconds": f"stopped after {config.max_seconds:g} s; --resume goes on from here"
        if config.max_seconds
        else "",
    }[outcome.reason]
    loss = f", loss {outcome.last.loss:.4f}" if outcome.last else ""
    print(f"step {outcome.step:,}{loss}: {how}\nmodel:    {outcome.checkpoint}", file=sys.stderr)


def _option(name: str) -> inspect.Parameter:
    """The option of one key: never required here, since a file may give it."""
    field = TrainConfig.model_fields[name]
    names = [f"--{name.replace('_', '-')}", *filter(None, [SHORT.get(name)])]
    text = " ".join((field.description or "").split())
    if not field.is_required() and field.default is not None:
        text += f" (default: {field.default})"
    kind, choices = _kind(field.annotation)
    made = typer.Option(*names, help=text, metavar="|".join(choices) or None, show_default=False)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, made]
    )


def _kind(annotation: Any) -> tuple[type, tuple[str, ...]]:
    """What the command line parses for a key's type, and its choices: `Annotated[int, ...] | None` is an int."""
    if get_origin(annotation) is Literal:
        return str, get_args(annotation)
    if isinstance(annotation, type):
        return annotation, ()
    return _kind(next(part for part in get_args(annotation) if part is not type(None)))


def _sign(function) -> None:
    """Give `command` its whole signature, which is what Typer reads."""
    own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    made = [_option(name) for name in TrainConfig.model_fields if name != "schema_url"]
    whole = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + made
    by_need = sorted(whole, key=lambda p: p.name not in REQUIRED)
    function.__signature__ = inspect.Signature(by_need)
    function.__annotations__ = {p.name: p.annotation for p in by_need}


_sign(command)
