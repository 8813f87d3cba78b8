"""How long a test waits for what comes if all is well."""

PATIENCE = 600
"""Seconds. They only end a hang: where all is well they never pass, however slow the machine."""
