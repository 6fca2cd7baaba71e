"""The protocol side of the language server (pygls)."""
