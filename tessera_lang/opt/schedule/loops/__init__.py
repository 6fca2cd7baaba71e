"""Rewrites of loops after the decisions: unrolled, peeled, software-pipelined."""
