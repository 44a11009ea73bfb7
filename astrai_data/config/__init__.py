"""The pipeline configuration: keys, defaults by version, checks, and the ready-made pipelines."""

from astrai_data.config.data import CleanStep, DataConfig, InputSpec, TokenizerSpec
from astrai_data.config.pipeline import PipelineConfig
from astrai_data.config.process import OutputConfig, PreprocessingConfig, RunConfig
from astrai_data.config.ready_made import ready_made_pipelines
from astrai_data.config.sections import InputConfig, Section, Source

__all__ = [
    "CleanStep",
    "DataConfig",
    "InputConfig",
    "InputSpec",
    "OutputConfig",
    "PipelineConfig",
    "PreprocessingConfig",
    "RunConfig",
    "Section",
    "Source",
    "TokenizerSpec",
    "ready_made_pipelines",
]
