"""Typed lane kernels to Tile IR."""
