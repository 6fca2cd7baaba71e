"""Checks of the house itself."""
