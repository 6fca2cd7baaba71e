"""Tile IR for a GPU, run on the CPU: everything asynchronous as late as it may be, and checked.

The specification is "The asynchronous model" in docs/ir.md. ``launch.py`` runs programs on
arrays, ``serialized_kernel.py`` an artifact on the argument block of a launch. Must not know the
language.
"""
