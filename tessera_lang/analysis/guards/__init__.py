"""Which bounds checks stay, and what one test ahead would decide."""
