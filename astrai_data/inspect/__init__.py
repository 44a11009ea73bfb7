"""Looking into stores: SQL, summaries, decoded samples, the mask of one record."""

from astrai_data.inspect.sample import MaskRun, SampleRow, sample
from astrai_data.inspect.sql import Session, connect, query
from astrai_data.inspect.summary import summary

__all__ = ["MaskRun", "SampleRow", "Session", "connect", "query", "sample", "summary"]
