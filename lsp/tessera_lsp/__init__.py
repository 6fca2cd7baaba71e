"""The language server: features over the compiler's session (``ide``), and LSP (``server``)."""
