"""Functions and kernels as operators of PyTorch and JAX."""
