"""How the embedded models are made: `python -m tools.training` (`make train-embedded`).

In stages, as LVLMs are: a vision tower that knows what is in each patch, a language model that has
read descriptions and knows no picture (so it has priors), a projector between them, then all
together on descriptions and questions, packed per image. Then a dual encoder, contrastively.
"""
