from astrai_data.run.pipeline import Pipeline, Progress
from astrai_data.run.plan import RunPlan

__all__ = ["Pipeline", "Progress", "RunPlan"]
