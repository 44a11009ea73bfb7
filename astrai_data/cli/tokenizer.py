"""`astrai tokenizer train` makes a byte-level BPE tokenizer; `astrai tokenizer show` prints how text is cut."""

from pathlib import Path
from typing import Annotated

import typer


def train(
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT...", help="Files to learn from; patterns allowed.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("--output", "--output-dir", "-o", metavar="DIR", help="Where the tokenizer goes.")
    ],
    vocab_size: Annotated[int, typer.Option(metavar="N", help="Ids in all, special tokens included.")],
    field: Annotated[str, typer.Option(metavar="NAME", help="The field that holds the text.")] = "text",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the tokenizer that is there.")] = False,
) -> None:
    """Train a byte-level BPE tokenizer with a ChatML template on the text of the inputs."""
    from astrai_data import interrupts
    from astrai_data.inspect.numbers import counted
    from astrai_data.inspect.texts import Texts
    from astrai_data.tokenizer import train_tokenizer
    from astrai_data.tokenizer.training import check_vocab_size

    check_vocab_size(vocab_size)
    _check_destination(output, overwrite)
    texts = Texts(inputs, field, warn=lambda text: typer.echo(f"warning: {text}", err=True))
    with interrupts.ending_at_once():
        tokenizer = train_tokenizer(texts, vocab_size)
    _save(tokenizer, output)
    used = f"{counted(texts.count, 'text')}, {counted(texts.num_bytes, 'byte')}"
    typer.echo(f"{output}: {counted(len(tokenizer), 'token')} from {used}")
    if len(tokenizer) < vocab_size:
        why = "no other pair of neighbouring tokens inside a word occurs twice in these texts"
        advice = "for more, give more text"
        typer.echo(
            f"note: {vocab_size:,} tokens were asked for, {len(tokenizer):,} came out: {why}; {advice}", err=True
        )


def _check_destination(output: Path, overwrite: bool) -> None:
    """Refuse a place where a tokenizer cannot go, or that has one, before the work is done."""
    from astrai_data.errors import TokenizerError

    if output.exists() and not output.is_dir():
        raise TokenizerError(
            "a tokenizer is a folder",
            where=output,
            got="a file",
            wanted="a folder, or a path where nothing is yet",
            hint="name another path with --output",
        )
    if (output / "tokenizer.json").exists() and not overwrite:
        raise TokenizerError(
            "there is a tokenizer at the destination already",
            where=output,
            got="tokenizer.json",
            wanted="a folder without tokenizer.json",
            hint="choose another folder, or replace this tokenizer with --overwrite",
        )


def _save(tokenizer, output: Path) -> None:
    from astrai_data.errors import TokenizerError

    try:
        tokenizer.save_pretrained(output)
    except OSError as error:
        raise TokenizerError(
            "the tokenizer cannot be written",
            where=error.filename or output,
            got=error.strerror,
            wanted="a folder that you may write to, with room in it",
            hint="name another folder with --output",
        ) from error


def show(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A folder with tokenizer.json, or of a training run.", show_default=False),
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to tokenize.", show_default=False)],
) -> None:
    """Print the tokens of a text, one a line: id and piece."""
    from astrai_data.inspect.numbers import counted
    from astrai_data.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_pretrained(directory)
    ids = tokenizer.encode(text)
    width = len(str(tokenizer.max_id))
    for token_id in ids:
        typer.echo(f"{token_id:>{width}}  {_piece(tokenizer, token_id)!r}")
    num_bytes = len(text.encode())
    rate = f", {num_bytes / len(ids):.2f} bytes a token" if ids else ""
    typer.echo(f"{counted(len(ids), 'token')}, {counted(num_bytes, 'byte')}{rate}")


def _piece(tokenizer, token_id: int) -> str | bytes:
    """The token's text; its bytes where they are part of a character."""
    if not tokenizer.is_byte_level:
        return tokenizer.decode([token_id], skip_special_tokens=False)
    data = tokenizer.token_bytes[token_id].tobytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
