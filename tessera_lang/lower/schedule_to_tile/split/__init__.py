"""Contractions shared by groups: split-K and stream-K."""
