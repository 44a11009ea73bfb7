"""The `astrai` command: the front door.

Mounts each package's commands lazily, so that `astrai --help` imports none of them, and turns errors into exit codes:
0 done, 1 failed, 2 wrong usage, 130 interrupted, 141 nobody reads on (128 + SIGPIPE). The only file that knows all
packages.
"""

import sys

try:
    import errno
    import importlib
    import os
    from typing import Annotated

    import typer
    from typer.core import TyperGroup

    from astrai_data import interrupts
except KeyboardInterrupt:
    sys.exit(130)

OURS = ("astrai", "astrai_data", "astrai_train", "astrai_serve", "astrai_kernels")
MISSING = """\
error: this command needs a library that is not installed
  got: no module named {name!r}
  wanted: the extra that brings it: train, serve, or all
  try: in the project's folder, pip install '.[all]'; `astrai doctor` says what is missing"""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
OLD_NAMES = {"tokenizer-path": "tokenizer"}
SETTINGS = {
    "help_option_names": ["-h", "--help"],
    # --output_dir is --output-dir, --tokenizer_path is --tokenizer
    "token_normalize_func": lambda name: OLD_NAMES.get(name.replace("_", "-"), name.replace("_", "-")),
}

# name -> (module, {function: name below it} or the one function, what --help says)
COMMANDS = {
    "preprocess": ("astrai_data.cli.preprocess", "command", "Turn text into a packed token store."),
    "inspect": (
        "astrai_data.cli.inspect",
        "command",
        "Look into a token store: summary, SQL, samples, proof.",
    ),
    "mask": ("astrai_data.cli.mask", "command", "Show which tokens of one record would be trained, and why."),
    "train": ("astrai_train.cli", "command", "Train a model on a token store."),
    "generate": ("astrai_serve.cli", "generate", "Continue a prompt with a trained model."),
    "serve": ("astrai_serve.cli", "serve", "Serve a trained model over HTTP."),
    "tokenizer": ("astrai_data.cli.tokenizer", ("train", "show"), "Train a tokenizer, or look at one."),
    "export": ("astrai_data.cli.export", "command", "Write a token store in another format."),
    "doctor": ("astrai_serve.doctor", "command", "Say what this machine offers, and what is missing."),
    "kernels": ("astrai_kernels.cli", ("build", "info"), "Build the compiled kernels, or see what is there and why."),
    "schema": ("astrai_data.cli.schema", "command", "Print the JSON Schema of pipelines, or a ready-made one."),
}


class LazyGroup(TyperGroup):
    """A command group whose commands are imported when they are run, not when they are listed."""

    def resolve_command(self, ctx, args):
        """The real command behind a listed name."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, _load(name), rest


def _load(name: str):
    """The command `name` as its package defines it."""
    module, functions, text = COMMANDS[name]
    found = importlib.import_module(module)
    mounted = typer.Typer(add_completion=False, context_settings=SETTINGS, no_args_is_help=True, help=text)
    for function in [functions] if isinstance(functions, str) else functions:
        mounted.command(name if function == functions else function, context_settings=SETTINGS)(
            getattr(found, function)
        )
    return typer.main.get_command(mounted)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"astrai {version('astrai')}")
        raise typer.Exit


def _callback(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Raw text in, a served model out, and every token on the way accounted for."""


def _listed() -> None:
    """Stand for a command in the list of commands; `LazyGroup` puts the real one in its place."""


def build_app() -> typer.Typer:
    """The whole command line, with nothing imported yet."""
    app = typer.Typer(name="astrai", cls=LazyGroup, no_args_is_help=True, context_settings=SETTINGS, callback=_callback)
    for name, (_, _, text) in COMMANDS.items():
        app.command(name, help=text)(_listed)
    return app


def main() -> None:
    """Run the command line and exit."""
    _stand_in()
    interrupts.listen()
    try:
        _run()
    except KeyboardInterrupt:  # while a command was still being imported
        sys.exit(130)
    except BrokenPipeError:  # whoever reads has had enough
        sys.stdout = None
        sys.exit(141)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in OURS:
            raise
        print(MISSING.format(name=error.name), file=sys.stderr)
        sys.exit(1)
    except Exception as error:
        told = _told(error)
        if told is None:
            raise
        print(f"error: {_visible(str(told))}", file=sys.stderr)
        sys.exit(1)
    finally:
        interrupts.ignore()


def _stand_in() -> None:
    """Open what the process was started without, so that no file or socket becomes its standard input or output."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest that is free: this one
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def _run() -> None:
    """Run the command; ends with SystemExit, or with what went wrong."""
    try:
        typer.main.get_command(build_app())(prog_name="astrai")
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer makes it exit code 1
            raise end.__context__ from None
        if sys.stdout is not None:
            sys.stdout.flush()  # at the end of Python a full disk would be a traceback
        raise


def _visible(text: str) -> str:
    """The text without anything that a terminal would obey, or an encoding refuse."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _told(error: Exception) -> Exception | None:
    """The error as the user reads it; None: it does not explain itself, is a defect of ours and keeps its traceback."""
    from astrai_data.errors import AstraiError

    kernels = sys.modules.get("astrai_kernels.errors")  # stands beside astrai_data and cannot know its errors
    if isinstance(error, (AstraiError, kernels.KernelError) if kernels else AstraiError):
        return error
    if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None:
        from astrai_data.store import refused

        sys.stdout = None  # what it still holds would fail once more at the end
        return refused("the answer cannot be written", error, "standard output")
    return None


if __name__ == "__main__":
    try:
        main()
    finally:
        eval("0")  # Python would end us by SIGINT if the last code that ran from a string was interrupted
