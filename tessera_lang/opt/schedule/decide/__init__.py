"""The decisions for a machine: attributes with their origins, nothing else."""
