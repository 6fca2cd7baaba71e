"""Tests. See docs/architecture.md."""
