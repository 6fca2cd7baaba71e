"""Rewrites for a machine, before its decisions."""
