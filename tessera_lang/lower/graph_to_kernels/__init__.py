"""Graph IR as tile kernels, which take the passes of those written by hand."""
