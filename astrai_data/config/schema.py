"""The JSON Schema that editors complete and check configurations with, from the parts' own declarations."""

from typing import Any

from astrai_data.config.part import ConfigPart

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(root: type[ConfigPart]) -> dict[str, Any]:
    """Schema of a configuration (draft 2020-12); a default that differs by version is version 2's."""
    return {"$schema": DRAFT, **_tidied(root.model_json_schema())}


def _tidied(node: Any) -> Any:
    """Without made-up titles; descriptions are their first paragraph, on one line."""
    if isinstance(node, list):
        return [_tidied(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    node = {key: _tidied(value) for key, value in node.items() if key != "title" or isinstance(value, dict)}
    if isinstance(node.get("description"), str):
        node["description"] = " ".join(node["description"].partition("\n\n")[0].split())
    return node
