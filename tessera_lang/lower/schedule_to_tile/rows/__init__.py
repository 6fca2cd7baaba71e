"""Kernels of rows: rows kept, rows read again, persistent groups."""
