"""Races on shared memory and on arrays."""
