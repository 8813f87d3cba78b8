"""Other libraries' ways in: each a small module, and the library itself imported on use."""
