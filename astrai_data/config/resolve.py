"""Defaults that depend on the version or on other keys, filled in once, at construction."""

from typing import TYPE_CHECKING, Any

from astrai_data.config.part import ConfigPart
from astrai_data.config.sections import InputConfig, Section, Source

if TYPE_CHECKING:
    from astrai_data.config.pipeline import PipelineConfig

ALWAYS_SPLIT = ("bfd_split", "concat")
"""Packing strategies under which an over-long document can only be split."""


def has_loss_mask(config: InputConfig) -> bool:
    """Whether some section in force is a template or is not trained."""
    return any(not section.is_trained_text for _, sections in config.section_lists for section in sections)


def part_defaults(config: "PipelineConfig", name: str) -> dict[str, Any]:
    """Resolved defaults of one part of the configuration, by key."""
    part: ConfigPart = getattr(config, name)
    defaults = part.defaults(config.version)
    if name == "preprocessing":
        defaults["over_long"] = _over_long(config)
    return defaults


def resolved_parts(config: "PipelineConfig") -> dict[str, ConfigPart]:
    """The configuration's parts with every default resolved."""
    names = ("data", "input", "preprocessing", "output", "run")
    parts = {name: getattr(config, name).with_defaults(part_defaults(config, name)) for name in names}
    parts["input"].__dict__.update(_sections_and_sources(parts["input"], config.version))
    return parts


def _over_long(config: "PipelineConfig") -> str:
    if config.preprocessing.packing_strategy in ALWAYS_SPLIT:
        return "split"
    if config.version == 1:
        return "truncate"
    return "drop" if has_loss_mask(config.input) else "split"


def _sections_and_sources(config: InputConfig, version: int) -> dict[str, Any]:
    sections, sources = config.sections, config.sources
    return {
        "sections": sections and _resolved_sections(sections, version),
        "sources": sources and {name: _resolved_source(name, it, version) for name, it in sources.items()},
    }


def _resolved_source(name: str, source: Source, version: int) -> Source:
    copy = source.with_defaults({"mask_key": f"{name}_mask"})
    copy.__dict__["sections"] = _resolved_sections(source.sections, version)
    return copy


def _resolved_sections(sections: tuple[Section, ...], version: int) -> tuple[Section, ...]:
    last = last_trained_text(sections)
    return tuple(
        section.with_defaults({"append_eos": version != 1 and index == last}) for index, section in enumerate(sections)
    )


def last_trained_text(sections: tuple[Section, ...]) -> int | None:
    """Index of the last trained text section: the one that the end-of-text token follows."""
    return max((index for index, section in enumerate(sections) if section.is_trained_text), default=None)
