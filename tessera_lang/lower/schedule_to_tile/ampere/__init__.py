"""Register tiles in one flow: mma.sync, copies ahead by cp.async."""
