"""What every part of a pipeline configuration shares: strict keys, frozen values, defaults by version.

A part declares each key with its type, its default (version 2's) and, as the string below it, its meaning.
The JSON Schema, the error messages and `to_dict` read these declarations. Rules between keys: `checks`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict


class ConfigPart(BaseModel):
    """One object of the configuration. An unknown key is an error."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        serialize_by_alias=True,
    )

    reference_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys that the reference has too: `to_dict` always writes them."""
    v1_defaults: ClassVar[Mapping[str, Any]] = {}
    """Defaults of version 1 where they differ."""
    refused: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Values that someone may expect to work: key -> value -> what to do instead."""
    other_names: ClassVar[Mapping[str, str]] = {}
    """What other tools call a key: their name -> ours."""

    @classmethod
    def defaults(cls, version: int) -> dict[str, Any]:
        """Every optional key's default in that version."""
        fields = {name: field for name, field in cls.model_fields.items() if not field.is_required()}
        defaults = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
        return defaults | dict(cls.v1_defaults if version == 1 else {})

    def with_defaults(self, defaults: Mapping[str, Any]) -> Self:
        """A copy in which every key that was not given has these values; it still counts as not given."""
        copy = self.model_copy()
        copy.__dict__.update({name: value for name, value in defaults.items() if not self.is_given(name)})
        return copy

    def is_given(self, name: str) -> bool:
        """Whether the key was written down rather than left to its default."""
        return name in self.model_fields_set
