"""Runs as other tools read them: `lookback export`.

formats.py is the table of formats. A format's module has `write(request, progress) -> Written`; it
is imported when it is asked for, as each may need a library of its own (extra `export`).
"""
