"""The standard library against NumPy."""
