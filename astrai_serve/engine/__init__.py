"""The engine: requests in, text out, one ragged forward a step."""

from astrai_serve.engine.engine import Engine
from astrai_serve.engine.loading import EngineOptions, load_engine
from astrai_serve.engine.sampling_params import SamplingParams
from astrai_serve.engine.sequence import Completion, Job, Sequence, Update

__all__ = ["Completion", "Engine", "EngineOptions", "Job", "SamplingParams", "Sequence", "Update", "load_engine"]
