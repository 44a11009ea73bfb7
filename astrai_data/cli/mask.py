"""`astrai mask`: one record through a pipeline, coloured by its loss mask."""

from typing import Annotated

import typer


def command(
    record: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A file whose first record is built: JSON, JSON Lines, ...", show_default=False
        ),
    ],
    config: Annotated[
        str, typer.Option("--config", "-c", metavar="PIPELINE", help="A configuration file, or a ready-made name.")
    ],
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", metavar="DIR", help="The tokenizer; without it, the configuration's."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show which tokens of a record would be trained, and by which rule.

    loss_mask flags tokens; num_trained counts labels: flagged, and not the first token, which is nobody's label.
    """
    from astrai_data.config import PipelineConfig
    from astrai_data.inspect.answer import paper
    from astrai_data.inspect.paint_record import print_record
    from astrai_data.inspect.record import mask_record
    from astrai_data.tokenizer import Tokenizer

    pipeline = PipelineConfig.from_file(config)
    directory = tokenizer or (pipeline.tokenizer.path if pipeline.tokenizer else None)
    if directory is None:
        raise typer.BadParameter(f"{config} names no tokenizer: add --tokenizer DIR", param_hint="--tokenizer")
    masked = mask_record(record, pipeline, Tokenizer.from_pretrained(directory))
    with paper(None) as page:
        if json:
            page.write_json(masked.to_dict())
        else:
            print_record(masked, record, page.console)
        for warning in masked.warnings:
            page.note(f"warning: {warning}")
