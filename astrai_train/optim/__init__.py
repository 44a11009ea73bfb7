"""Optimizer, schedule of the learning rate, norm of the gradient."""

from astrai_train.optim.adamw import build_adamw
from astrai_train.optim.gradient import clip_gradient, gradient_norm
from astrai_train.optim.schedule import CosineSchedule

__all__ = ["CosineSchedule", "build_adamw", "clip_gradient", "gradient_norm"]
