"""`astrai tokenizer train` makes a byte-level BPE tokenizer; `astrai tokenizer show` prints how text is cut."""

from collections.abc import Iterator
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
) -> None:
    """Train a byte-level BPE tokenizer with a ChatML template on the text of the inputs."""
    from astrai_data.errors import InputError
    from astrai_data.tokenizer import train_tokenizer

    texts = _Counted(_read_texts(inputs, field))
    tokenizer = train_tokenizer(texts, vocab_size)
    if not texts.count:
        raise InputError(
            "no text to learn from", where=", ".join(inputs), wanted=f"records with text in {field!r}", hint="--field"
        )
    tokenizer.save_pretrained(output)
    typer.echo(f"{output}: {len(tokenizer):,} tokens from {texts.count:,} texts")


def show(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with tokenizer.json.", show_default=False)],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to tokenize.", show_default=False)],
) -> None:
    """Print the tokens of a text, one a line: id and piece."""
    from astrai_data.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_pretrained(directory)
    ids = tokenizer.encode(text)
    width = len(str(tokenizer.max_id))
    for token_id in ids:
        typer.echo(f"{token_id:>{width}}  {_piece(tokenizer, token_id)!r}")
    num_bytes = len(text.encode())
    rate = f", {num_bytes / len(ids):.2f} bytes a token" if ids else ""
    typer.echo(f"{len(ids):,} tokens, {num_bytes:,} bytes{rate}")


def _piece(tokenizer, token_id: int) -> str | bytes:
    """The token's text; its bytes where they are part of a character."""
    if not tokenizer.is_byte_level:
        return tokenizer.decode([token_id], skip_special_tokens=False)
    data = tokenizer.token_bytes[token_id].tobytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


class _Counted:
    """An iterator that knows how many items it gave."""

    def __init__(self, items: Iterator[str]) -> None:
        self._items = items
        self.count = 0

    def __iter__(self) -> Iterator[str]:
        for item in self._items:
            self.count += 1
            yield item


def _read_texts(inputs: list[str], field: str) -> Iterator[str]:
    from astrai_data.config import InputSpec
    from astrai_data.records import FieldSpec, cut_inputs, expand_inputs, read_records

    files = expand_inputs([InputSpec(path=path) for path in inputs])
    wanted = [FieldSpec(field, "text")]
    for task in cut_inputs(files):
        for part in task:
            for chunk in read_records(files[part.file], part.begin, part.end, wanted, max_record_bytes=2**26):
                yield from filter(None, chunk.columns.column(wanted[0].column).to_pylist())
