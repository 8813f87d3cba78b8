"""tab:main_results: what each method's picks are worth, with 95 % bootstrap intervals."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from lookback.runs import Run
from lookback.studies.base import Result, Runs, study
from lookback.studies.plots import COLORS, panels
from lookback.studies.selection import (
    METHODS,
    OTHERS,
    budgets,
    has,
    in_order,
    interval,
    outcome,
    percent,
    resampled,
    title,
)
from lookback.studies.tables import Table, ranked
