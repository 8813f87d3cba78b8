"""The paper's tables and figures, one a file: runs in; numbers, tables and a figure out."""
