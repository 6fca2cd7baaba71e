"""Lane kernels on the CPU with every access looked at: races, unwritten reads, barriers.

All lanes of some groups step together through Tile IR, as NumPy arrays with one number a lane.
``machine.py`` runs, ``shadow.py`` remembers who touched what, ``kernel.py`` runs an artifact. Must
not know the language.
"""
