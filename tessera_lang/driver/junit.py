"""Results of tests as JUnit XML, for build servers.

Owns the format: a ``testsuite`` for each file and target, and one for what is wrong with
files. Must not know how tests are run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from xml.sax.saxutils import escape, quoteattr

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.diagnostics.render import render
from tessera_lang.driver.testing import Result
from tessera_lang.source import SourceFile

Files = Mapping[str, SourceFile]
# What XML 1.0 cannot hold, escaped or not.
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(
    results: Iterable[Result], faulty: Mapping[str, tuple[Diagnostic, ...]], files: Files
) -> str:
    """The document; ``faulty`` are the files whose tests could not run."""
    suites: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        suites.setdefault((result.test.path, result.target), []).append(result)
    parts = [_suite(name, target, rs, files) for (name, target), rs in suites.items()]
    for path, diagnostics in faulty.items():
        errors = [d for d in diagnostics if d.severity == "error"]
        if errors:
            parts.append(_faulty(path, errors, files))
    body = "".join(parts)
    return f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites>\n{body}</testsuites>\n'


def _suite(path: str, target: str, results: list[Result], files: Files) -> str:
    failures = sum(not r.passed for r in results)
    seconds = sum(r.seconds for r in results)
    head = (
        f"  <testsuite name={_value(f'{path} [{target}]')} tests={_value(len(results))} "
        f'failures={_value(failures)} errors="0" skipped="0" time={_value(f"{seconds:.6f}")}>\n'
    )
    return head + "".join(_case(r, files) for r in results) + "  </testsuite>\n"


def _case(result: Result, files: Files) -> str:
    head = (
        f"    <testcase classname={_value(result.test.path)} "
        f"name={_value(result.test.function.name)} file={_value(result.test.path)} "
        f"time={_value(f'{result.seconds:.6f}')}"
    )
    inner = _problem("failure", result.diagnostics, files) if result.diagnostics else ""
    if result.output:
        inner += f"      <system-out>{_text(result.output)}</system-out>\n"
    return f"{head}>\n{inner}    </testcase>\n" if inner else f"{head}/>\n"


def _faulty(path: str, errors: list[Diagnostic], files: Files) -> str:
    return (
        f'  <testsuite name={_value(path)} tests="1" failures="0" errors="1" '
        f'skipped="0" time="0">\n'
        f'    <testcase classname={_value(path)} name="check" file={_value(path)} time="0">\n'
        f"{_problem('error', errors, files)}    </testcase>\n  </testsuite>\n"
    )


def _problem(kind: str, diagnostics: Iterable[Diagnostic], files: Files) -> str:
    items = list(diagnostics)
    text = render(items, files, "human")
    return (
        f"      <{kind} type={_value(items[0].code)} message={_value(items[0].message)}>"
        f"{_text(text)}</{kind}>\n"
    )


def _value(value: object) -> str:
    return quoteattr(_NOT_IN_XML.sub("?", str(value)), {"\n": "&#10;", "\t": "&#9;"})


def _text(text: str) -> str:
    return escape(_NOT_IN_XML.sub("?", text))
