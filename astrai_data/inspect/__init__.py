"""Looking into stores: SQL, summaries, decoded samples, the mask of one record."""

from astrai_data.inspect.runs import MaskRun
from astrai_data.inspect.sample import SampleRow, one_row, sample
from astrai_data.inspect.sql import Session, connect, query
from astrai_data.inspect.summary import summary

__all__ = ["MaskRun", "SampleRow", "Session", "connect", "one_row", "query", "sample", "summary"]
