"""Mask rules: why a token is trained or not.

Every token of a built sequence belongs to exactly one rule, a (name, trained) pair; a store lists its rules once and
its segments refer to them by number. The list follows from the configuration alone, so that it cannot depend on which
records a task happens to see.
"""

from astrai_data.config import PipelineConfig, Section
from astrai_data.mask_rule import MaskRule

KNOWN_ROLES = ("system", "developer", "user", "assistant", "tool")
OTHER_ROLE = "other_role"


def mask_rules(config: PipelineConfig) -> tuple[MaskRule, ...]:
    """Every rule that the configuration can apply, in a fixed order; positions are the stored numbers."""
    sections = config.input.sections or []
    rules = [MaskRule("bos", False)] if any(section.template for section in sections) else []
    for section in sections:
        rules += _section_rules(config, section)
    if any(section.append_eos for section in sections):
        rules.append(MaskRule("eos", True))
    return tuple(dict.fromkeys(rules))


def trained_roles(config: PipelineConfig) -> frozenset[str]:
    """The known roles whose messages a `$role` section trains; unknown ones follow `mask_default`."""
    names = dict.fromkeys((*KNOWN_ROLES, *config.mask))
    return frozenset(name for name in names if trains_role(config, name))


def trains_role(config: PipelineConfig, role: str) -> bool:
    """Whether a `$role` section trains the messages of `role`."""
    return config.mask.get(role, config.mask_default) == "train"


def role_rule(config: PipelineConfig, role: str) -> MaskRule:
    """The rule of a trained message of `role`."""
    return MaskRule(role if role in KNOWN_ROLES or role in config.mask else OTHER_ROLE, True)


def _section_rules(config: PipelineConfig, section: Section) -> list[MaskRule]:
    if section.action != "$role":
        return [MaskRule(section.field, section.action == "train")]
    roles = [MaskRule(role, True) for role in (*KNOWN_ROLES, *config.mask) if trains_role(config, role)]
    others = [MaskRule(OTHER_ROLE, True)] if config.mask_default == "train" else []
    return [MaskRule("context", False), *roles, *others]
