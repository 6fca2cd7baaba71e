"""Integer ranges of Tile IR: what each index can be."""
