"""The embedded engine: Hugging Face models over Octavo's pool. This is its lower half, which computes steps."""

from octavo.engine.batch import ScheduledSequence, StepBatch, StepLogits
from octavo.engine.models import CacheGeometry, CausalModel, load_model
from octavo.engine.runner import ModelRunner

__all__ = [
    "CacheGeometry",
    "CausalModel",
    "ModelRunner",
    "ScheduledSequence",
    "StepBatch",
    "StepLogits",
    "load_model",
]
