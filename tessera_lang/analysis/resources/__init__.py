"""Registers, layouts, occupancy and memory traffic of a kernel."""
