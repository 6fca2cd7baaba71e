"""C headers of built kernels: names, premises as checks, and launches."""
