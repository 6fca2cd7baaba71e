"""Dtypes, symbolic shapes, types of values."""
