"""`astrai doctor`: what this machine offers, what is missing or slow, and what to do about it.

Nothing here is imported but the standard library and typer before its section is asked, and a section that fails
says so in its own line: the doctor answers on a base install, on a broken one and on one without torch. Credentials
are looked for by name; their values, and the paths that variables give, are never read into the answer.
The page has no colours, whatever NO_COLOR says.
"""

import importlib
import json as json_format
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Annotated

import typer

from astrai_serve.machine import Fact, Modules, devices, disks, measured

ADVICE = "missing or slow"
POINTERS = ("GOOGLE_APPLICATION_CREDENTIALS", "AWS_WEB_IDENTITY_TOKEN_FILE")  # variables that name a file
GOOGLE_FILE = "application_default_credentials.json"
CREDENTIAL_VARIABLES = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_SECRET",
    "GOOGLE_APPLICATION_CREDENTIALS", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN",
)  # fmt: skip
# What it is called here; the variables that move it, first one first, and the path below them; where it usually is.
CREDENTIAL_FILES = (
    ("AWS credentials file", (("AWS_SHARED_CREDENTIALS_FILE", ""),), "~/.aws/credentials"),
    ("Google credentials file", (("CLOUDSDK_CONFIG", GOOGLE_FILE),), f"~/.config/gcloud/{GOOGLE_FILE}"),
    (
        "Hugging Face token file",
        (("HF_TOKEN_PATH", ""), ("HF_HOME", "token"), ("XDG_CACHE_HOME", "huggingface/token")),
        "~/.cache/huggingface/token",
    ),
)
SAMPLE = "A tiny tokenizer for one check: bytes, 12 digits, a few words, a few words more."


@dataclass(frozen=True)
class Library:
    """A library AstrAI uses: `minimum` version, and the extra that brings it (empty: every install has it)."""

    name: str
    minimum: str = ""
    extra: str = ""


def command(json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Say what this machine offers, what is missing or slow, and what to do. Takes a few seconds: it measures.

    Exit code 1: a library that AstrAI needs is missing. Values of credentials are never printed.
    """
    sections = examine()
    facts = [fact for section in sections.values() for fact in section]
    ok = not any(fact.needed and fact.advice for fact in facts)
    sys.stdout.reconfigure(errors="backslashreplace")
    print(_as_json(sections, ok) if json else _as_page(sections))
    if not ok:
        raise typer.Exit(1)


def examine() -> dict[str, list[Fact]]:
    """Every section's facts, in the order of the page."""
    wanted = _libraries()
    modules, failures = _import_all(wanted)
    sections: dict[str, Callable[[], Iterable[Fact]]] = {
        "versions": lambda: _versions(wanted, failures),
        "devices": lambda: devices(modules),
        "kernels": lambda: _kernels(modules),
        "tokenizer backends": _tokenizer_backends,
        "measured": lambda: measured(modules),
        "free disk": lambda: disks(modules),
        "credentials": _credentials,
    }
    return {name: _facts(find) for name, find in sections.items()}


def _facts(find: Callable[[], Iterable[Fact]]) -> list[Fact]:
    """The facts of a section up to where it fails, and then why: one broken library must not silence the others."""
    found: list[Fact] = []
    try:
        found.extend(find())
    except Exception as error:
        found.append(Fact("error", None, note=_said_by(error), advice=_said_by(error)))
    return found


def _libraries() -> list[Library]:
    """What the installed AstrAI says it needs; what the doctor itself looks at, if it is not installed."""
    try:
        lines = metadata.requires("astrai") or []
    except metadata.PackageNotFoundError:
        return [Library("numpy"), Library("psutil"), Library("tokenizers"), Library("torch", "", "train")]
    found: dict[str, Library] = {}
    for line in lines:
        name = re.match(r"[\w.-]+", line)[0]
        minimum, extra = re.search(r">=\s*([\d.]+)", line), re.search(r"extra == ['\"](\w+)", line)
        library = Library(name, minimum[1] if minimum else "", extra[1] if extra else "")
        if name != "astrai" and library.extra != "dev":
            found.setdefault(name, library)
    return list(found.values())


def _import_all(wanted: list[Library]) -> tuple[Modules, dict[str, Exception]]:
    """(what can be imported, why the rest cannot): an installed library may still not load."""
    modules: Modules = {}
    failures: dict[str, Exception] = {}
    for library in wanted:
        try:
            modules[library.name] = importlib.import_module(library.name.replace("-", "_"))
        except Exception as error:
            failures[library.name] = error
    return modules, failures


def _versions(wanted: list[Library], failures: dict[str, Exception]) -> Iterator[Fact]:
    yield Fact("python", platform.python_version(), note=platform.platform())
    try:
        yield Fact("astrai", metadata.version("astrai"))
    except metadata.PackageNotFoundError:
        yield Fact("astrai", "not installed", note="runs from its source", advice="pip install astrai")
    for library in wanted:
        yield _version(library, failures.get(library.name))


def _version(library: Library, failure: Exception | None) -> Fact:
    name, origin = library.name, f"astrai[{library.extra}]" if library.extra else "astrai"
    note = f"{origin} wants {library.minimum or 'any'}{' or later' if library.minimum else ''}"
    fact = Fact(name, None, note=note, needed=not library.extra)
    if isinstance(failure, ModuleNotFoundError) and failure.name == name:
        return replace(fact, value="missing", advice=f"pip install '{origin}'")
    try:
        fact = replace(fact, value=metadata.version(name))
    except metadata.PackageNotFoundError:
        fact = replace(fact, value="unknown")
    if failure is not None:
        advice = f"it is installed but does not load: pip install --force-reinstall {name}"
        return replace(fact, note=_said_by(failure), advice=advice)
    if fact.value != "unknown" and _numbers(fact.value) < _numbers(library.minimum):
        return replace(fact, advice=f"too old: pip install --upgrade '{name}>={library.minimum}'")
    return fact


def _numbers(version: str) -> list[int]:
    """The release part of a version, to compare: 2.13.0+cpu is [2, 13, 0]."""
    return [int(number) for number in re.match(r"[\d.]*", version)[0].split(".") if number]


def _kernels(modules: Modules) -> Iterator[Fact]:
    if "torch" not in modules:
        yield Fact("backend", None, note="needs torch")
        return
    from astrai_kernels import report

    facts, advice = report(), ""
    if facts["backend"] == "torch" and facts["requested"] != "torch":
        advice = f"the slower torch path is taken ({facts['reason']}): `astrai kernels build` compiles the faster one"
    yield Fact("backend", facts["backend"], note=facts["reason"], advice=advice)
    for name in ("requested", "capability", "threads", "compiler", "library"):
        yield Fact(name, facts[name])


def _tokenizer_backends() -> Iterator[Fact]:
    from astrai_data.tokenizer import Tokenizer, check_backend, train_tokenizer

    for name in ("tokenizers", "fastokens"):
        yield Fact(name, metadata.version(name))
    with tempfile.TemporaryDirectory(prefix="astrai-doctor-") as folder:
        train_tokenizer([SAMPLE], 280).save_pretrained(folder)
        check = check_backend(Tokenizer.from_pretrained(folder), [SAMPLE])
    if check.equal:
        note = f"fastokens equals tokenizers on {check.num_texts} texts with a built-in byte-level tokenizer"
        yield Fact("auto takes", "fastokens", note=note)
    else:
        advice = "encoding runs on the slower tokenizers: pip install --upgrade fastokens"
        yield Fact("auto takes", "tokenizers", note=check.reason, advice=advice)


def _credentials() -> list[Fact]:
    """Those that are there. Notes are fixed words: even the path in a variable is a value."""
    return list(_found_credentials()) or [Fact("any", "none found", note="of AWS, Azure, Google or Hugging Face")]


def _found_credentials() -> Iterator[Fact]:
    for name in filter(os.environ.get, CREDENTIAL_VARIABLES):
        is_well = name not in POINTERS or _is_file(os.environ[name])
        advice = "" if is_well else "it names a file that is not there, or not to be read"
        yield Fact(name, "found", note="environment variable", advice=advice)
    for name, moves, usual in CREDENTIAL_FILES:
        variable, below = next(((one, below) for one, below in moves if os.environ.get(one)), ("", ""))
        path = os.path.join(os.environ[variable], below).rstrip("/") if variable else usual
        if _is_file(path):
            yield Fact(name, "found", note=f"where {variable} says" if variable else usual)


def _is_file(path: str) -> bool:
    path = os.path.expanduser(path)
    return os.path.isfile(path) and os.access(path, os.R_OK)


def _as_json(sections: dict[str, list[Fact]], ok: bool) -> str:
    found = {
        section: {fact.name: {"value": fact.value, "unit": fact.unit, "note": fact.note} for fact in facts}
        for section, facts in sections.items()
    }
    advice = [{"section": section, "name": fact.name, "do": fact.advice, "needed": fact.needed}
              for section, facts in sections.items() for fact in facts if fact.advice]  # fmt: skip
    return json_format.dumps({"ok": ok, "sections": found, ADVICE: advice}, indent=2)


def _as_page(sections: dict[str, list[Fact]]) -> str:
    advice = [(fact.name, fact.advice, "") for facts in sections.values() for fact in facts if fact.advice]
    tables = {
        name: [(fact.name, _cell(fact), fact.note) for fact in facts if fact.value is not None or fact.note]
        for name, facts in sections.items()
    }
    tables[ADVICE] = advice or [("nothing", "", "")]
    width = max(len(row[0]) for rows in tables.values() for row in rows)
    return "\n\n".join("\n".join([title, *_lines(rows, width)]) for title, rows in tables.items())


def _lines(rows: list[tuple[str, str, str]], width: int) -> Iterator[str]:
    beside = max((len(value) for _, value, note in rows if note), default=0)
    for row in rows:
        name, value, note = map(_visible, row)
        yield f"  {name:<{width}}  {value:<{beside}}  {note}".rstrip()


def _cell(fact: Fact) -> str:
    if fact.value is None:
        return "-"
    text = f"{fact.value:,}" if isinstance(fact.value, int | float) else fact.value
    return f"{text} {fact.unit}".rstrip()


def _visible(text: str) -> str:
    """On one line, without anything that a terminal would obey."""
    text = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _said_by(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
