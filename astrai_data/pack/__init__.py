"""Packing: lengths in, a plan out; then tokens and masks gathered by it."""

from astrai_data.pack.bfd import plan_bfd
from astrai_data.pack.gather import gather
from astrai_data.pack.plan import STRATEGIES, Plan, plan
from astrai_data.pack.positions import continuous, doc_reset
from astrai_data.pack.segments import CUT_AFTER, CUT_BEFORE, Segments

__all__ = [
    "CUT_AFTER",
    "CUT_BEFORE",
    "STRATEGIES",
    "Plan",
    "Segments",
    "continuous",
    "doc_reset",
    "gather",
    "plan",
    "plan_bfd",
]
