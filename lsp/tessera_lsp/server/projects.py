"""The folders of the workspace: what their ``tessera.toml`` says, and a session for each.

Owns which folder a file belongs to. What the environment says stands above every file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping

from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.driver.options import Options, from_environment
from tessera_lang.driver.project import nearest_file, project
from tessera_lang.driver.session import Session
from tessera_lang.record import dataclass, field
from tessera_lang.target.arch import OLDEST
from tessera_lang.target.backend import TargetOptions

logger = logging.getLogger("tessera-lsp")


@dataclass(slots=True, eq=False)
class Project:
    """A folder, or the one in which the server was started. ``checks``: the table ``[check]``;
    ``faults``: what is wrong with ``file``, the settings that count here."""

    folder: str | None
    session: Session = field(default_factory=Session)
    options: Options = field(default_factory=Options)
    checks: Mapping[str, bool] = field(default_factory=dict[str, bool])
    file: str | None = None
    faults: tuple[Diagnostic, ...] = ()

    def __post_init__(self) -> None:
        self.read()

    def read(self) -> None:
        """Read the settings again; where they are not usable, what was read before counts."""
        self.file, self.faults = None, ()
        before = self.options.path
        try:
            self.file = nearest_file(os.getcwd() if self.folder is None else self.folder)
            self.options = from_environment(folder=self.folder)
            found = project(self.folder)
            self.checks = {} if found is None else found.check
        except TesseraError as error:
            self.faults = error.diagnostics
        except (ValueError, OSError) as error:
            logger.error("the settings could not be read: %s", error)
        if self.options.path != before:
            self.session.look_in(self.options.path)
        self.session.options = self.made_for()

    def made_for(self) -> TargetOptions | None:
        """What a run of a file would make code for, where the environment or the project says it.
        Whether there is a device is not looked at here."""
        if self.options.target not in ("cpu", "cuda"):
            return None
        usual = "native" if self.options.target == "cpu" else OLDEST.name
        return self.options.for_target(self.options.target, self.options.arch or usual)


class Projects:
    """The projects by folder. ``outside``: of files that lie in no folder of the workspace."""

    def __init__(self) -> None:
        self.outside = Project(None)
        self._known: dict[str, Project] = {}

    def __iter__(self) -> Iterator[Project]:
        return iter((self.outside, *self._known.values()))

    def of(self, path: str, folders: Iterable[str]) -> Project:
        """The project of a file: the innermost of these folders that holds it."""
        inside = [f for f in folders if path.startswith(os.path.join(f, ""))]
        if not inside:
            return self.outside
        folder = max(inside, key=len)
        if folder not in self._known:
            self._known[folder] = Project(folder)
        return self._known[folder]
