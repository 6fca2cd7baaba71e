"""Tile IR to PTX and machine code of NVIDIA GPUs. See docs/architecture.md."""
