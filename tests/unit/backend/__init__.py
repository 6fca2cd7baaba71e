"""Tests that mirror the sources."""
