"""Benchmarks: us and the peers in one process, alternating, medians; JSON under results/."""
