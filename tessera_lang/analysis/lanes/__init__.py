"""Walks over a kernel for all lanes of a group at once."""
