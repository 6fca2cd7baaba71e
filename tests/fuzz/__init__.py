"""Generated tests; `make fuzz` runs them for longer."""
