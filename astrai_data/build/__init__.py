from astrai_data.build.builder import Builder, Built, wanted_fields
from astrai_data.build.documents import DocumentBatch
from astrai_data.build.rules import mask_rules
from astrai_data.build.token_dtype import sequence_dtype
from astrai_data.build.untrained import UntrainedRoles, untrained_roles

__all__ = [
    "Builder",
    "Built",
    "DocumentBatch",
    "UntrainedRoles",
    "mask_rules",
    "sequence_dtype",
    "untrained_roles",
    "wanted_fields",
]
