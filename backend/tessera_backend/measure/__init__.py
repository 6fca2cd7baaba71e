"""Measuring: clocks, statistics, and samples that are taken in turn."""
