"""What every lowering to register tiles uses."""
