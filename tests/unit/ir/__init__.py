"""Tests of the IR core and of Tile IR."""
