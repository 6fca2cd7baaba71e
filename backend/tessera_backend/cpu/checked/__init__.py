"""Kernels on the CPU, every access looked at: races, unwritten reads, barriers, scopes, indices.

``shadow_elision.py`` says which memory has a shadow, ``emit.py`` and ``shadow_checks.py`` write
the code, ``slow_paths.py`` what it calls, ``shadow_words.py`` is what code and caller agree on,
``kernel.py`` launches and reads the record. Must not know the language.
"""
