"""Passes and transformations of Graph IR."""
