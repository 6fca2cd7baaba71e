"""Passes between levels; today lane kernels to Tile IR."""

from tessera_lang.lower.ast_to_tile.kernel import finish_plan, lower_kernel

__all__ = ["finish_plan", "lower_kernel"]
