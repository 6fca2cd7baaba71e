"""The architectures of GPUs: one table, which everything reads.

Owns the rows, what their names mean, and the page that shows them. Must not know LLVM, the driver
or a schedule.
"""

from tessera_lang.target.arch.architecture import (
    FEATURES,
    Architecture,
    Feature,
    Limits,
    Model,
    Rates,
    rates_of_model,
)
from tessera_lang.target.arch.names import (
    architecture_named,
    architecture_of,
    capability_of,
    find_architecture,
    is_gpu_name,
    listed,
    model_named,
    name_of,
    runs_on,
    specific_to,
    unknown_architecture,
)
from tessera_lang.target.arch.rows import MEMBERS, OLDEST, ROWS

__all__ = [
    "FEATURES", "MEMBERS", "OLDEST", "ROWS", "Architecture", "Feature", "Limits", "Model", "Rates",
    "architecture_named", "architecture_of", "capability_of", "find_architecture", "is_gpu_name",
    "listed", "model_named", "name_of", "rates_of_model", "runs_on", "specific_to",
    "unknown_architecture",
]  # fmt: skip
