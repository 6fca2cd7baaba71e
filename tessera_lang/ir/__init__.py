"""One SSA core, printed, parsed, verified and rewritten; the operation sets stand in folders.

See docs/ir.md for the reference of what exists.
"""
