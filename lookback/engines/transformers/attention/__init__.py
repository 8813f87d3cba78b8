"""Attention with its visual share: partial attention, kernels, the tap, weights per token."""
