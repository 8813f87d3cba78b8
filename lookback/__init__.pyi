# The public names, each once: type checkers read them here, and so does lookback/__init__.py.
from lookback.benchmarks.base import benchmark as benchmark
from lookback.benchmarks.metrics import metric as metric
from lookback.conversations import Conversation as Conversation
from lookback.conversations import SourceError as SourceError
from lookback.engines import AbilityError as AbilityError
from lookback.engines import Engine as Engine
from lookback.engines import Identity as Identity
from lookback.engines import UnsupportedModelError as UnsupportedModelError
from lookback.engines import engine as engine
from lookback.engines import load as load
from lookback.engines.transformers import record as record
from lookback.families import FAMILIES as FAMILIES
from lookback.families import Family as Family
from lookback.looks.look import Look as Look
from lookback.looks.look import Picture as Picture
from lookback.runs import Run as Run
from lookback.runs import open_run as open_run
from lookback.scores.base import scorer as scorer
from lookback.scores.base import scorers as scorers
from lookback.scores.formula import lookback_score as lookback_score
from lookback.scores.formula import lookback_scores as lookback_scores
from lookback.scores.formula import relevance as relevance
from lookback.scores.formula import token_scores as token_scores
from lookback.signals import Candidate as Candidate
from lookback.signals import Candidates as Candidates
from lookback.signals import Signals as Signals
from lookback.steering.pruning import Pruning as Pruning
from lookback.studies import study as study

__version__: str
