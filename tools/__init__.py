"""What makes the embedded models and the reproduction; run from a checkout, not in the wheel."""
