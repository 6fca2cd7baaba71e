"""Files, spans and line indices."""

from tessera_lang.source.file import SourceFile
from tessera_lang.source.span import Anchor, Span

__all__ = ["Anchor", "SourceFile", "Span"]
