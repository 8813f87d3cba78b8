"""For all tests of studies; beside this file are their made-up runs and slow readings."""
