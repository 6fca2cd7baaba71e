"""Places in sources as a folder has them: no path of the machine that built it.

Owns what a path becomes. Must not know how folders are written.
"""

from __future__ import annotations

import os

from tessera_lang.record import replace
from tessera_lang.target.backend import Artifact
from tessera_lang.target.launch_plan import Condition, FaultSite, LaunchPlan, ParameterPlan

Place = tuple[str, int, int]


class Portable:
    """Paths in and below ``root`` are relative to it, those of the standard library begin with
    ``std/``, and of all others the name of the file is left."""

    def __init__(self, root: str) -> None:
        from tessera_lang.driver.modules import standard_library

        self._root = os.path.abspath(root)
        self._library = standard_library()
        self._known: dict[str, str] = {}

    def path(self, path: str) -> str:
        if path not in self._known:
            self._known[path] = self._path(path)
        return self._known[path]

    def _path(self, path: str) -> str:
        if not path or path.startswith("<"):
            return path
        whole = os.path.abspath(path)
        roots = [("", self._root)]
        if self._library is not None:
            roots.insert(0, ("std/", os.path.abspath(self._library)))
        for begin, root in roots:
            if whole.startswith(root.rstrip(os.sep) + os.sep):
                return begin + os.path.relpath(whole, root).replace(os.sep, "/")
        return os.path.basename(whole)

    def artifact(self, artifact: Artifact) -> Artifact:
        """An artifact and the launches behind it, with places of a folder."""
        then = tuple(self.artifact(a) for a in artifact.then)
        return replace(artifact, plan=self.plan(artifact.plan), then=then)

    def plan(self, plan: LaunchPlan) -> LaunchPlan:
        return replace(
            plan, parameters=tuple(map(self._parameter, plan.parameters)),
            brackets=tuple(map(self._parameter, plan.brackets)),
            sites=tuple(map(self._site, plan.sites)),
            conditions=tuple(map(self._condition, plan.conditions)),
        )  # fmt: skip

    def _parameter(self, p: ParameterPlan) -> ParameterPlan:
        return replace(p, span=self._place(p.span))

    def _site(self, site: FaultSite) -> FaultSite:
        return replace(site, file=self.path(site.file))

    def _condition(self, condition: Condition) -> Condition:
        return replace(condition, span=self._place(condition.span))

    def _place(self, place: Place) -> Place:
        return (self.path(place[0]), *place[1:])
