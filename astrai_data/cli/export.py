"""`astrai export`: a store in another format."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A token store.", show_default=False)],
    dest: Annotated[
        Path,
        typer.Argument(
            metavar="DEST", help="Where to: a new folder (reference) or a new file (jsonl).", show_default=False
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="jsonl: one document a line; reference: a tree of raw shard directories. "
            "Without it, jsonl if DEST ends in .jsonl, else reference.",
            show_default=False,
        ),
    ] = None,
    split: Annotated[str, typer.Option("--split", metavar="NAME", help="train, validation or all.")] = "train",
    skip_special_tokens: Annotated[
        bool, typer.Option("--skip-special-tokens", help="Leave special tokens out of the text (jsonl).")
    ] = False,
) -> None:
    """Write a token store in another format."""
    from astrai_data.inspect.numbers import counted
    from astrai_data.store.export import export_store, format_of
    from astrai_data.store.token_store import TokenStore

    opened = TokenStore.open(store, None if split == "all" else split)
    to = to or format_of(dest)
    count = export_store(opened, dest, to, skip_special_tokens=skip_special_tokens)
    what = counted(count, "document" if to == "jsonl" else "shard")
    typer.echo(f"{dest}: {what}, {counted(opened.num_tokens, 'token')} of split {split}")
    left = opened.manifest.totals["num_tokens"] - opened.num_tokens
    if left:
        typer.echo(f"left out: {counted(left, 'token')} of other splits; --split all takes them too")
