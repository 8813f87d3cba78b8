"""One table or figure of the paper per file, from recorded runs alone."""

from lookback.studies.base import Result, Runs, StudyError, get_study, study

__all__ = ["Result", "Runs", "StudyError", "get_study", "study"]
