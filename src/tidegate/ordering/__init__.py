"""The ordered multicore runtime: parallel operators over records, with the output of a sequential run."""

from tidegate.ordering.heuristics import Observed
from tidegate.ordering.pipeline import Pipeline, merge, pipeline
from tidegate.ordering.runtime import DeadLetter

__all__ = ["DeadLetter", "Observed", "Pipeline", "merge", "pipeline"]
