"""Scenes: drawn pictures and English about them, from a seed; four tasks after the paper's four.

    world      what there is, as tables           scene      a scene as data, drawn by lot
    shapes, drawings, sprites, background, render            a scene as pixels
    words, templates, questions                              a scene as text
    lexicon, parse, facts, answers                           text understood and judged
    splits, task, vqa, caption, amber, pairs                 the tasks

Biased on purpose (usual colours, places and companions), so that a model's priors compete with what
it sees. Needs NumPy and Pillow only.
"""

from lookback.scenes.render import pixels, render
from lookback.scenes.scene import Scene, Thing, sample_scene

__all__ = ["Scene", "Thing", "pixels", "render", "sample_scene"]
