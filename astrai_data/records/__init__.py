from astrai_data.records.chunk import RAW_BYTES, FieldSpec, RecordChunk, Reject
from astrai_data.records.cuts import InputRange, cut_inputs
from astrai_data.records.hashing import content_hash
from astrai_data.records.inputs import InputFile, Inputs, expand_inputs, find_inputs
from astrai_data.records.passed_over import PassedOver
from astrai_data.records.reader import RangeReader

__all__ = [
    "RAW_BYTES",
    "FieldSpec",
    "InputFile",
    "InputRange",
    "Inputs",
    "PassedOver",
    "RangeReader",
    "RecordChunk",
    "Reject",
    "content_hash",
    "cut_inputs",
    "expand_inputs",
    "find_inputs",
]
