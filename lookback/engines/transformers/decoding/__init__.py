"""Decoding N continuations of one prompt: batches, prefixes, caches, sessions."""
