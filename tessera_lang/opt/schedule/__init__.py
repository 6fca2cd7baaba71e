"""Passes on Schedule IR: what is independent, and what is decided for a machine.

Their order is in ``driver/pipeline.py``.
"""
