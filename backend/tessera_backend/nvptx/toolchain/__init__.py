"""Architectures, ptxas and its kin, LLVM text to PTX."""
