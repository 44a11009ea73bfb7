"""What must hold between keys: `problems_in` are wrong in themselves, `obstacles_in` only stop a run."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from astrai_data.config.problems import Problem, nearest, shown
from astrai_data.config.resolve import ALWAYS_SPLIT
from astrai_data.config.sections import Section

if TYPE_CHECKING:
    from astrai_data.config.pipeline import PipelineConfig

ID_DTYPES = ("auto", "uint8", "int8", "uint16", "int16", "int32", "int64")


def problems_in(config: "PipelineConfig") -> Iterator[Problem]:
    """Everything wrong in a configuration whose keys are each right on their own."""
    for check in _CHECKS:
        yield from check(config)


def obstacles_in(config: "PipelineConfig") -> Iterator[Problem]:
    """What keeps a valid configuration from being run."""
    if config.clean:
        got = shown([step.model_dump(exclude_unset=True) for step in config.clean])
        yield Problem("clean", "cleaning steps are not supported yet", got, "no steps", "an empty list")
    if config.input.sources:
        got = "sources " + ", ".join(config.input.sources)
        yield Problem("input.sources", "several outputs are not supported yet", got, "one output", "input.sections")
    elif not config.input.sections:
        example = '[{"field": "text", "action": "train"}]'
        what = "there are no sections, so nothing would be built"
        yield Problem("input.sections", what, shown(config.input.sections), "a list of at least one", example)
    elif config.preprocessing.drop_untrained and not _trains_anything(config):
        yield Problem(
            "input.sections",
            "nothing is trained, so every document would be dropped",
            got=_actions(config),
            wanted="a section or a role with the action train",
            hint="preprocessing.drop_untrained: false keeps documents with nothing to train",
        )


def _actions(config: "PipelineConfig") -> str:
    """The actions of all sections, and what roles get."""
    actions = [section.action for _, sections in config.input.section_lists for section in sections]
    roles = {**config.mask, "other roles": config.mask_default} if "$role" in actions else {}
    return ", ".join([*(f"action {action}" for action in actions), *(f"{key}: {flag}" for key, flag in roles.items())])


def _trains_anything(config: "PipelineConfig") -> bool:
    by_role = "train" in (config.mask_default, *config.mask.values())
    actions = [section.action for _, sections in config.input.section_lists for section in sections]
    return "train" in actions or (by_role and "$role" in actions)


def _section_problems(config: "PipelineConfig") -> Iterator[Problem]:
    lists = [("input.sections", config.input.sections or (), False)]
    for name, source in (config.input.sources or {}).items():
        lists.append((f"input.sources.{name}.sections", source.sections, True))
    for path, sections, in_source in lists:
        for index, section in enumerate(sections):
            yield from _problems_of_section(f"{path}[{index}]", section, in_source)
        if len(sections) > 1 and any(section.action == "value" for section in sections):
            what = "a section with the action value must be its source's only one"
            hint = "move the other sections into a source of their own"
            yield Problem(path, what, f"{len(sections)} sections", "one section", hint)


def _problems_of_section(path: str, section: Section, in_source: bool) -> Iterator[Problem]:
    if section.action == "value" and not in_source:
        what, hint = "the action value belongs in input.sources", "train, for a text that is learnt"
        yield Problem(f"{path}.action", what, '"value"', "train, mask or $role", hint)
    if section.action == "value" and section.template:
        what, hint = "a template section cannot be a value", "$role for chats; or leave template out"
        yield Problem(f"{path}.action", what, '"value"', "train, mask or $role", hint)
    if section.action == "$role" and not section.template:
        yield Problem(
            f"{path}.action",
            "only messages have roles",
            '"$role"',
            "train or mask",
            "template: true for chats",
        )
    if section.generation_prompt and not section.template:
        what = "only a template section has a generation prompt"
        yield Problem(f"{path}.generation_prompt", what, "true", "false, or template: true", "leave it out")
    if section.append_eos and not section.is_trained_text:
        what = "the end-of-text token follows a trained text section only"
        wanted = "false here, or action: train without template"
        yield Problem(f"{path}.append_eos", what, "true", wanted, "leave it out")


def _source_problems(config: "PipelineConfig") -> Iterator[Problem]:
    if config.version != 1 and config.input.sources and config.input.sections:
        what = "sections and sources exclude each other"
        yield Problem("input", what, "sections and sources", "one of the two", "take out sources")


def _length_problems(config: "PipelineConfig") -> Iterator[Problem]:
    lengths = config.preprocessing
    if lengths.max_chars < lengths.min_chars:
        yield Problem(
            "preprocessing.max_chars",
            "every text would be filtered",
            f"{lengths.max_chars}",
            f"at least min_chars, which is {lengths.min_chars}",
            "raise max_chars, or lower min_chars",
        )
    if lengths.packing_strategy in ALWAYS_SPLIT and lengths.over_long != "split":
        yield Problem(
            "preprocessing.over_long",
            f"packing_strategy {lengths.packing_strategy} splits over-long documents",
            shown(lengths.over_long),
            "split, or no over_long",
            "packing_strategy: bfd",
        )
    two_caps = config.version != 1 and lengths.over_long == "truncate" and lengths.max_seq_len
    if two_caps and lengths.max_seq_len > lengths.max_packed_len:
        yield Problem(
            "preprocessing.max_seq_len",
            "truncated documents never get this long",
            f"{lengths.max_seq_len}",
            f"at most max_packed_len, which is {lengths.max_packed_len}",
            "leave max_seq_len out",
        )


def _dtype_problems(config: "PipelineConfig") -> Iterator[Problem]:
    columns = known_columns(config)
    for column, dtype in config.output.dtype.items():
        path = f"output.dtype.{column}"
        if column not in columns:
            wanted = "one of " + ", ".join(columns)
            hint = nearest(column, columns) or "take it out"
            yield Problem(path, f"unknown column {shown(column)}", shown(dtype), wanted, hint)
        if column == "sequence" and dtype not in ID_DTYPES:
            yield Problem(path, "token ids are whole numbers", shown(dtype), "one of " + ", ".join(ID_DTYPES), "auto")


def known_columns(config: "PipelineConfig") -> list[str]:
    """Columns that a configuration can name: those of packed stores, then its sources and their masks."""
    sources = config.input.sources or {}
    return ["sequence", "loss_mask", "position_ids", *sources, *(it.mask_key for it in sources.values())]


def _field_problems(config: "PipelineConfig") -> Iterator[Problem]:
    kept = config.data.keep_fields
    folded = [name.lower() for name in kept]  # SQL does not tell names apart by case
    for name in sorted({name for name in kept if folded.count(name.lower()) > 1}):
        what, wanted = f"{shown(name)} is listed twice", "names that differ beyond case"
        yield Problem("data.keep_fields", what, shown(list(kept)), wanted, f"list {shown(name)} once")
    read = [section.field for _, sections in config.input.section_lists for section in sections]
    known = list(dict.fromkeys([*read, *kept, *filter(None, [config.output.domain_key])]))
    for index, spec in enumerate(config.data.inputs):
        for name in spec.fields if read else ():
            if name not in known:
                yield Problem(
                    f"data.inputs[{index}].fields.{name}",
                    f"nothing in this pipeline reads the field {shown(name)}",
                    got=shown(spec.fields[name]),
                    wanted="one of " + ", ".join(known),
                    hint=nearest(name, known) or "take it out",
                )


_CHECKS: tuple[Callable[["PipelineConfig"], Iterator[Problem]], ...] = (
    _section_problems,
    _source_problems,
    _length_problems,
    _dtype_problems,
    _field_problems,
)
