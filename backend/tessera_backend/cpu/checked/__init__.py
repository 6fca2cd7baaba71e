"""Kernels on the CPU, every access looked at: races, unwritten reads, barriers, scopes, indices.

``roots.py`` says which memory has a shadow, ``emit.py`` and ``looking.py`` write the code,
``slow_paths.py`` what it calls, ``words.py`` is what code and caller agree on, ``kernel.py``
launches and reads the record. Must not know the language.
"""
