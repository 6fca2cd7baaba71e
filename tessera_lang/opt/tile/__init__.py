"""Passes within Tile IR. Their order is in ``driver/pipeline.py``."""
