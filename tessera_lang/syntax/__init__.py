"""Text to syntax trees: lexer, layout, parser, recovery, the printed tree."""

from tessera_lang.syntax.limits import decode_source
from tessera_lang.syntax.parser import (
    Chunk,
    ParseCache,
    ParsedModule,
    parse_expression,
    parse_module,
)

__all__ = [
    "Chunk",
    "ParseCache",
    "ParsedModule",
    "decode_source",
    "parse_expression",
    "parse_module",
]
