"""Two ways to write a configuration down: for people and files (`written`), and for the hash (`hashed`)."""

from typing import TYPE_CHECKING, Any

from astrai_data.config.part import ConfigPart
from astrai_data.config.resolve import last_trained_text, part_defaults
from astrai_data.config.sections import Section, Source

if TYPE_CHECKING:
    from astrai_data.config.pipeline import PipelineConfig

UNHASHED = {
    "schema_url": True,
    "name": True,
    "version": True,
    "tokenizer": True,
    "data": {"inputs"},
    "preprocessing": {"batch_size"},
    "output": {"position_ids_mode"},
    "run": {"max_reject_ratio", "min_rejects"},
}
"""Keys that change no byte of a store, or that `config_hash` takes from elsewhere."""
NESTED = ("inputs", "sections", "sources", "clean")
"""Keys that hold further parts inside a list or a map."""
COLUMNS = ("sequence", "loss_mask", "position_ids")


def written(config: "PipelineConfig") -> dict[str, Any]:
    """See `PipelineConfig.to_dict`."""
    parts = {name: part_defaults(config, name) for name in ("data", "input", "preprocessing", "output", "run")}
    keys = _dumped(config)
    for name, defaults in parts.items():
        keys[name] = _without_defaults(getattr(config, name), defaults)
    if config.data.inputs:
        keys["data"]["inputs"] = [_without_defaults(spec, spec.defaults(2)) for spec in config.data.inputs]
    if config.tokenizer is not None:
        keys["tokenizer"] = _without_defaults(config.tokenizer, config.tokenizer.defaults(config.version))
    top_defaults = {"$schema": None, "name": None, "tokenizer": None, "clean": [], "data": {}, "run": {}}
    return {key: value for key, value in keys.items() if key not in top_defaults or value != top_defaults[key]}


def _without_defaults(part: ConfigPart, defaults: dict[str, Any]) -> dict[str, Any]:
    kept = {name for name in type(part).model_fields if name in part.reference_keys or _differs(part, name, defaults)}
    return {name: value for name, value in _dumped(part).items() if name in kept}


def _differs(part: ConfigPart, name: str, defaults: dict[str, Any]) -> bool:
    return name not in defaults or getattr(part, name) != defaults[name]


def _dumped(part: ConfigPart) -> dict[str, Any]:
    """All keys of a part; inside lists and maps only the keys that were given."""
    given = part.model_dump(mode="json", exclude_unset=True)
    return part.model_dump(mode="json") | {key: given[key] for key in NESTED if key in given}


def hashed(config: "PipelineConfig") -> dict[str, Any]:
    """See `PipelineConfig.hashed_form`."""
    form = config.model_dump(mode="json", exclude=UNHASHED)
    sources = config.input.sources or {}
    form["input"]["sources"] = {name: _hashed_source(source) for name, source in sources.items()}
    form["input"]["sections"] = [] if sources else _hashed_sections(config.input.sections or ())
    if config.preprocessing.packing_strategy == "bfd_split":
        form["preprocessing"]["packing_strategy"] = "bfd"
    columns = dict.fromkeys([*COLUMNS, *config.output.dtype])
    form["output"]["dtype"] = {column: config.dtype_of(column) for column in columns}
    return _without_fractions(form)


def _hashed_source(source: Source) -> dict[str, Any]:
    form = source.model_dump(mode="json") | {"mask_key_explicit": source.mask_key_explicit}
    return form | {"sections": _hashed_sections(source.sections)}


def _hashed_sections(sections: tuple[Section, ...]) -> list[dict[str, Any]]:
    """Whichever section asks for it, the end-of-text token follows the last trained text."""
    asked, last = any(section.append_eos for section in sections), last_trained_text(sections)
    return [
        section.model_dump(mode="json") | {"append_eos": asked and index == last}
        for index, section in enumerate(sections)
    ]


def _without_fractions(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_fractions(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_fractions(inner) for inner in value]
    return repr(value) if isinstance(value, float) else value
