"""The programs on the pages of the codes: the wrong one is refused, the right one is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tessera_backend.runtime.host_environment import HostWorld

from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver.advice import Questions, advice, remarks_of
from tessera_lang.driver.session import Session
from tessera_lang.evaluate.fault import HostFault
from tessera_lang.sema import check_function, signature_of_annotations
from tessera_lang.sema.side_tables import FunctionSymbol
from tessera_lang.target.backend import TargetOptions

PAGES = Path(__file__).resolve().parents[2] / "docs" / "errors"
ADVICE = {
    "T0412": Questions(strict=True), "T0413": Questions(strict=True),
    "T0416": Questions(strict=True),
    "P1001": Questions(lints=True), "P1002": Questions(lints=True),
    "P1003": Questions(occupancy=True), "P1004": Questions(guards=True),
    "P1005": Questions(guards=True), "P1007": Questions(lints=True),
}  # fmt: skip
"""What has to be asked for the codes that a check alone does not report."""
SEEN_BEFORE = {"T0808": "T0109"}
"""What a check says of a fault that has a code of its own when the program runs."""
BLOCK = re.compile(r"^```tessera (wrong|right)\n(.*?)^```", re.S | re.M)


def programs() -> list[tuple[str, str, str]]:
    """Code, kind and text."""
    return [
        (page.stem, match[1], match[2])
        for page in (*sorted(PAGES.glob("P1*.md")), *sorted(PAGES.glob("T0*.md")))
        for match in BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(("code", "kind", "source"), programs(), ids=lambda v: v[:5])
@pytest.mark.sample(206)
def test_program(code: str, kind: str, source: str, tmp_path: Path) -> None:
    path = str(tmp_path / "page.tessera")
    if code == "T0132":
        link_to_another_folder(tmp_path / "lib.tessera")
    session = Session()
    session.set_text(path, source, 1)
    if code == "T0502":  # the limit of a target
        session.options = TargetOptions("cuda", "sm_90")
    found = [d.code for d in session.check(path)]
    if code in ADVICE:
        found += [d.code for d in advice(session, path, ADVICE[code])]
    if code.startswith(("T074", "T075")) or code == "P1006":
        machine = session.machine("cuda", "sm_90")
        found += [d.code for d in remarks_of(session, path, machine) if d.code == code]
    if code == "T0650":
        found += without_sizes(session, path)
    if code.startswith("T08"):
        found = [c for c in found if c != SEEN_BEFORE.get(code)]
        found += run(session, path, checked=code == "T0853")
    said = code == "P1003" or kind == "wrong"  # P1003 says something of every kernel
    assert sorted(set(found)) == ([code] if said else [])


def run(session: Session, path: str, checked: bool) -> list[str]:
    """The codes that running a program on the CPU ends in: those from T08 on show only then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESSERA_CHECKED", str(int(checked)))
        patch.chdir(Path(path).parent)
        try:
            session.run(path, HostWorld(session, "cpu", lambda text: None))
        except (HostFault, TesseraError) as error:
            return [d.code for d in error.diagnostics]
    return []


def without_sizes(session: Session, path: str) -> list[str]:
    """The codes of kernels of which nobody says a size."""
    scope, found = session.scope(path), list[str]()
    for kernel in session.kernels(path):
        signature = signature_of_annotations(kernel, scope)
        assert signature is not None
        symbol = FunctionSymbol(kernel, scope.path)
        found += [d.code for d in check_function(symbol, signature, session.scope)[1]]
    return found


def link_to_another_folder(link: Path) -> None:
    elsewhere = link.parent.with_name(f"{link.parent.name}-elsewhere")
    elsewhere.mkdir()
    (elsewhere / "lib.tessera").write_text("x = 1\n", encoding="utf-8")
    try:
        link.symlink_to(elsewhere / "lib.tessera")
    except OSError:
        pytest.skip("links cannot be made here")
