"""What a schedule costs: cycles, registers, bytes."""
