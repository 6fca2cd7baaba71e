"""Typed tile kernels -> Schedule IR and the launch plan, without group and grid."""

from tessera_lang.lower.ast_to_schedule.kernel import lower_tile_kernel

__all__ = ["lower_tile_kernel"]
