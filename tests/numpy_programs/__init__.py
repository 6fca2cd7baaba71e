"""Programs as users of NumPy write them, one function each; ``as_numpy`` runs their lines there."""
