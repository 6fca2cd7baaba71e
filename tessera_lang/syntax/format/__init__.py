"""The formatter: a file in the one layout that all files have."""

from tessera_lang.syntax.format.formatter import FormatFault, format_source

__all__ = ["FormatFault", "format_source"]
