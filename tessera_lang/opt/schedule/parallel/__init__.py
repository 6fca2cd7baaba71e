"""What may run at the same time: loops, grids, launches. Knows no machine."""
