"""Graph IR: whole tensors as values, and the one table of operators on them."""
