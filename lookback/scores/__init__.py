"""Scores: what each response is worth. Scorers by subject, all behind one registry."""
