"""What an access, an atomic or a fence that a lane does is, by its operation alone.

The records of walks and of runs add who did it and when. Must not know lanes.
"""

from __future__ import annotations

from tessera_lang.analysis.lanes.shared_access_log import KINDS, Kind
from tessera_lang.ir.core import Operation
from tessera_lang.ir.definitions import WRITES


class DoneAccess:
    """An access to an element."""

    __slots__ = ()
    operation: Operation

    @property
    def kind(self) -> Kind:
        return KINDS[self.operation.name]

    @property
    def changes(self) -> bool:
        """By a store or an atomic."""
        return self.operation.name in WRITES

    @property
    def narrow(self) -> bool:
        """An atomic that other groups do not see as one."""
        return self.operation.attributes.get("scope") in ("tile", "group")


class DoneSync:
    """An atomic or a fence."""

    __slots__ = ()
    operation: Operation

    @property
    def fence(self) -> bool:
        return self.operation.name == "tile.fence"

    @property
    def order(self) -> str:
        return "acq_rel" if self.fence else str(self.operation.attributes["order"])

    @property
    def reads(self) -> bool:
        return bool(self.operation.results)
