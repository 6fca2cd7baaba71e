"""What passes ask of a Schedule kernel: loops, loads, products, sizes. Decides nothing."""
