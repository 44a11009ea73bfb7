from astrai_data.run.execution import Progress
from astrai_data.run.pipeline import Pipeline
from astrai_data.run.plan import RunPlan

__all__ = ["Pipeline", "Progress", "RunPlan"]
