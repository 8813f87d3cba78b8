"""Input and output: images, videos, URLs, storage, files, limits, JSON-safe values."""
