"""Names, types and checks: syntax trees to typed functions.

``resolve_module`` gives a file's names; ``check_structure`` checks its functions without a
signature; ``signature_of_annotations`` says whether annotations alone fix one;
``check_function`` types a function for a signature. ``unique`` joins their reports.
"""

from tessera_lang.sema.generic_check import check_structure
from tessera_lang.sema.instance import check_function, examine_function, unique
from tessera_lang.sema.module_scope import Importer, ModuleScope, Scopes
from tessera_lang.sema.module_symbols import resolve_module
from tessera_lang.sema.signature import signature_of_annotations

__all__ = [
    "Importer",
    "ModuleScope",
    "Scopes",
    "check_function",
    "check_structure",
    "examine_function",
    "resolve_module",
    "signature_of_annotations",
    "unique",
]
