"""Plain functions over whole arrays as Graph IR.

The host program's own evaluator runs the function in a world whose arrays are values of a graph:
what the function does to them is recorded, and nothing is computed.
"""
