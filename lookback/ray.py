"""For users of Ray: `lookback.ray.Scorer`, a class for `ray.data.Dataset.map_batches`.

Importing this imports neither Ray nor torch. Runs on a cluster are `lookback run --ray`.
"""

from lookback.integrations.ray_data import Scorer

__all__ = ["Scorer"]
