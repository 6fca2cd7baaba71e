"""What is the same in every lane, and where lanes may part."""
