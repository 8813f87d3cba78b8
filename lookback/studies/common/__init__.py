"""What the studies share, a subject per file."""
