"""Schedule IR: tiles of arrays, loops over them, and what the schedule decides about both."""
