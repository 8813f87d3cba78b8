"""Scenes: drawn pictures and English about them, from a seed.

    world               what there is, as tables
    scene               a scene as data, drawn by lot
    drawings, render    a scene as pixels
    questions           a scene as text
    parse, facts        text understood and judged

The tasks are in `lookback.benchmarks.scenes`.

Biased on purpose (usual colours, places and companions), so that a model's priors compete with what
it sees. Needs NumPy and Pillow only.
"""

from lookback.scenes.render import pixels, render
from lookback.scenes.scene import Scene, Thing, sample_scene

__all__ = ["Scene", "Thing", "pixels", "render", "sample_scene"]
