"""The operations of Tile IR: the table, the builder, the rules."""
