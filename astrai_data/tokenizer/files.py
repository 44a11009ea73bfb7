"""The files of a tokenizer directory, in every form that is published: read once, written back without loss.

`tokenizer.json` is kept as the text it was. Of `tokenizer_config.json` we understand the special tokens (our own
`special_tokens` map, top-level `bos_token` and the like as strings or token objects, `special_tokens_map.json`) and
the chat template (a string, null, a list of named templates, or `chat_template.jinja` beside it, which wins).
Everything else in it is carried along untouched.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from astrai_data.errors import TokenizerError, TokenizerNotFoundError

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
TOKEN_MAP_FILE = "special_tokens_map.json"
TEMPLATE_FILE = "chat_template.jinja"
DEFAULT_TEMPLATE = "default"
_CHECKPOINT = re.compile(r"epoch_(0|[1-9]\d*)_step_(0|[1-9]\d*)", re.ASCII)


@dataclass(frozen=True)
class TokenizerFiles:
    """What a tokenizer directory says.

    Attributes:
        tokenizer_json: the text of `tokenizer.json`.
        config: `tokenizer_config.json` as it stands, unknown fields included.
        special_tokens: attribute name (`bos_token`) -> token string.
        templates: chat templates by name; the usual one is called `default`.
    """

    tokenizer_json: str
    config: dict = field(default_factory=dict)
    special_tokens: dict[str, str] = field(default_factory=dict)
    templates: dict[str, str] = field(default_factory=dict)

    def with_special_tokens(self, special_tokens: dict[str, str]) -> "TokenizerFiles":
        """A copy in which the directory's own tokens win over the given ones."""
        return replace(self, special_tokens={**special_tokens, **self.special_tokens})


def find_directory(path: str | Path) -> Path:
    """The tokenizer directory that a path means: itself, or the newest checkpoint in a training run's folder."""
    path = Path(path)
    if os.path.lexists(path / TOKENIZER_FILE):
        return path
    folders = [file.parent for file in path.glob(f"epoch_*_step_*/{TOKENIZER_FILE}")]
    checkpoints = [(int(name[2]), int(name[1]), at) for at in folders if (name := _CHECKPOINT.fullmatch(at.name))]
    return max(checkpoints)[-1] if checkpoints else path


def read_files(path: Path) -> TokenizerFiles:
    """Read the tokenizer directory that a path means.

    Raises:
        TokenizerNotFoundError: there is no `tokenizer.json`.
        TokenizerError: a file is not what it should be.
    """
    directory = find_directory(path)
    tokenizer_json = _read_text(directory / TOKENIZER_FILE)
    if tokenizer_json is None:
        raise TokenizerNotFoundError(
            "no tokenizer found",
            where=directory / TOKENIZER_FILE,
            got="no such folder" if not directory.is_dir() else f"a folder without {TOKENIZER_FILE}",
            wanted=f"a directory that holds {TOKENIZER_FILE}, or the folder of a training run",
            hint="make one with `astrai tokenizer train`, or point at a downloaded model directory",
        )
    config = _read_object(directory / CONFIG_FILE)
    return TokenizerFiles(
        tokenizer_json=tokenizer_json,
        config=config,
        special_tokens=_read_special_tokens(directory, config),
        templates=_read_templates(directory, config),
    )


@contextmanager
def in_folder(path: str | Path | None) -> Iterator[None]:
    """What goes wrong with `tokenizer.json` inside the block is told with its folder in front."""
    try:
        yield
    except TokenizerError as error:
        if path is None or TOKENIZER_FILE not in str(error.where):
            raise
        where = f"{find_directory(path)}: {error.where}"
        raise type(error)(error.what, where=where, got=error.got, wanted=error.wanted, hint=error.hint) from error


def write_files(directory: Path, files: TokenizerFiles) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`, making `directory` if need be."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / TOKENIZER_FILE).write_text(files.tokenizer_json, encoding="utf-8")
    config = {**files.config, "special_tokens": files.special_tokens, "chat_template": _template_field(files)}
    for name, token in files.special_tokens.items():
        if _token_string(config.get(name)) != token:
            config[name] = token
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (directory / CONFIG_FILE).write_text(text, encoding="utf-8")
    # A template file left from an earlier save would win over the field just written.
    (directory / TEMPLATE_FILE).unlink(missing_ok=True)


def _template_field(files: TokenizerFiles) -> str | list[dict[str, str]] | None:
    if set(files.templates) <= {DEFAULT_TEMPLATE}:
        return files.templates.get(DEFAULT_TEMPLATE)
    return [{"name": name, "template": text} for name, text in files.templates.items()]


def _read_text(path: Path) -> str | None:
    """The text of a file; None if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        what, got = "a tokenizer file cannot be read", error.strerror or error
        wanted, hint = "a file that you may read", "have its owner let you read it, or copy the folder"
        raise TokenizerError(what, where=path, got=got, wanted=wanted, hint=hint) from error
    except UnicodeDecodeError as error:
        what, hint = "a tokenizer file is not UTF-8", "fetch the file again, or save it as UTF-8"
        raise TokenizerError(what, where=path, got=error, wanted="UTF-8 text", hint=hint) from error


def _read_object(path: Path) -> dict:
    text = _read_text(path)
    if text is None:
        return {}
    try:
        value = json.loads(text.removeprefix("\ufeff"))
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        what, hint = "a tokenizer file holds half a character", "take the \\ud8.. to \\udf.. escape out of the file"
        raise TokenizerError(what, where=path, got=error, wanted="whole characters", hint=hint) from error
    except (ValueError, RecursionError) as error:
        what, hint = "a tokenizer file is not JSON", "fetch the file again, or mend it at that place"
        raise TokenizerError(what, where=path, got=error, wanted="a JSON object", hint=hint) from error
    if not isinstance(value, dict):
        got = type(value).__name__
        what, hint = "a tokenizer file is not a JSON object", "fetch the file again, or put its keys into {...}"
        raise TokenizerError(what, where=path, got=got, wanted="an object", hint=hint)
    return value


def _read_special_tokens(directory: Path, config: dict) -> dict[str, str]:
    own = config.get("special_tokens") or {}
    if not isinstance(own, dict):
        raise TokenizerError(
            "special_tokens is not a map",
            where=directory / CONFIG_FILE,
            got=type(own).__name__,
            wanted='an object such as {"bos_token": "<s>"}',
            hint="write it so, or take the key out",
        )
    sources = (_named_tokens(_read_object(directory / TOKEN_MAP_FILE)), _named_tokens(config), own)
    found: dict[str, str] = {}
    for source in sources:
        for name, value in source.items():
            token = _token_string(value)
            if token is not None:
                found[name] = token
    return found


def _named_tokens(config: dict) -> dict:
    return {name: value for name, value in config.items() if name.endswith("_token")}


def _token_string(value: object) -> str | None:
    """The string of a token given as a string or as an object with `content`; None for anything else."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None


def _read_templates(directory: Path, config: dict) -> dict[str, str]:
    templates = _named_templates(config.get("chat_template"), directory / CONFIG_FILE)
    text = _read_text(directory / TEMPLATE_FILE)
    return templates if text is None else {**templates, DEFAULT_TEMPLATE: text}


def _named_templates(value: object, where: Path) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT_TEMPLATE: value}
    entries = value if isinstance(value, list) else [value]
    if not all(_is_named_template(entry) for entry in entries):
        raise TokenizerError(
            "chat_template cannot be read",
            where=where,
            got=type(value).__name__,
            wanted='a string, null, or a list of {"name": ..., "template": ...}',
            hint="write it so, or take the key out",
        )
    return {entry["name"]: entry["template"] for entry in entries}


def _is_named_template(entry: object) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("name", "template"))
