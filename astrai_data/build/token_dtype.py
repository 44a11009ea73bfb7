"""The dtype in which token ids are stored."""

import numpy as np

from astrai_data.config import PipelineConfig
from astrai_data.errors import PipelineConfigError


def sequence_dtype(config: PipelineConfig, max_id: int) -> np.dtype:
    """The dtype of stored token ids: as configured, else uint16 where the largest id fits, else int32.

    Raises:
        PipelineConfigError: the configured dtype does not hold every id of the tokenizer.
    """
    name = config.dtype_of("sequence")
    fitting = "uint16" if max_id <= np.iinfo(np.uint16).max else "int32"
    dtype = np.dtype(fitting if name == "auto" else name)
    if max_id > np.iinfo(dtype).max:
        raise PipelineConfigError(
            "the token ids do not fit the data type",
            where="output.dtype.sequence",
            got=f"{name} (up to {np.iinfo(dtype).max:,}), largest id {max_id:,}",
            wanted=f"auto, or {fitting} or wider",
            hint="set it to auto, or leave it out",
        )
    return dtype
