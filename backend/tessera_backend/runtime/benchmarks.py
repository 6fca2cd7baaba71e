"""``tessera.bench``: what a call takes, beside other callables that do the same.

Owns which clock a call needs, and what its caller gets. How samples are taken is
``tessera_backend.measure``. Must not know how a kernel is launched.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, SupportsIndex, cast

from tessera_backend.measure.clocks import Call, Clock, DeviceClock, HostClock
from tessera_backend.measure.interleaving import Timing, measure
from tessera_backend.runtime import faults
from tessera_backend.runtime.arrays import HOST, describe, torch_stream
from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.caller_errors import WrongType
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.record import dataclass

CACHES = ("warm", "cold")
_LONGEST = 3600.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a call takes. All times are in seconds of one call.

    ``seconds`` is the median of ``samples``, each of which is the mean of ``calls`` calls. ``low``
    and ``high`` bound it with a confidence of 95 % where ``confident``; with fewer than 6 samples
    they are the least and the largest one. ``spread`` is the distance of the quartiles over the
    median. ``reached`` says whether the median is known as well as was asked. ``host_bound``: the
    device waited for the host, so this is what the host takes to launch. ``clock`` names the clock,
    ``cache`` is ``warm`` or ``cold``."""

    name: str
    seconds: float
    low: float
    high: float
    spread: float
    least: float
    confident: bool
    reached: bool
    host_bound: bool
    clock: str
    cache: str
    calls: int
    samples: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        """The fields, as JSON has them."""
        fields = {name: getattr(self, name) for name in self.__match_args__}
        return fields | {"samples": list(self.samples)}

    def __str__(self) -> str:
        text = (f"{self.name}: {_shown(self.seconds)} [{_shown(self.low)}, {_shown(self.high)}], "
                f"spread {100 * self.spread:.1f} %, {len(self.samples)} x {self.calls} calls, "
                f"{self.cache} cache, {self.clock}")  # fmt: skip
        notes = [n for n, holds in (("not as precise as asked", not self.reached),
                                    ("the host's time", self.host_bound)) if holds]  # fmt: skip
        return f"{text} ({', '.join(notes)})" if notes else text


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What ``bench`` gives: ``own`` is of the function, ``peers`` of the other callables."""

    own: Measurement
    peers: Mapping[str, Measurement]

    @property
    def seconds(self) -> float:
        """The median of the function, in seconds of one call."""
        return self.own.seconds

    def speedup(self, peer: str) -> float:
        """How many times as long as the function a peer takes. Raises KeyError."""
        other = self.peers[peer].seconds
        return other / self.own.seconds if self.own.seconds else float("inf")

    def as_dict(self) -> dict[str, Any]:
        """The fields, as JSON has them."""
        return {"own": self.own.as_dict(), "peers": {n: p.as_dict() for n, p in self.peers.items()}}

    def __str__(self) -> str:
        lines = [str(self.own)]
        lines += [f"{p} ({self.speedup(n):.2f} times as long)" for n, p in self.peers.items()]
        return "\n".join(lines)


def bench(
    function: Callable[..., object], arguments: tuple[object, ...],
    peers: Mapping[str, Callable[..., object]], cache: str, seconds: float, precision: float,
    device: object,
) -> Benchmark:  # fmt: skip
    """As the public function says."""
    if not callable(function):
        raise WrongType("function", function, "something that can be called")
    if cache not in CACHES:
        raise _refused(f"a cache is `warm` or `cold`, not {cache!r}", 'write `cache="cold"`')
    _check_number("seconds", seconds, _LONGEST)
    _check_number("precision", precision, 1.0)
    own = str(getattr(function, "__name__", "") or type(function).__name__)
    clock = _clock(function, arguments, device)
    calls: dict[str, Call] = {"": _bound(function, arguments)}
    for name, peer in _named(peers):
        calls[name] = _bound(peer, arguments)
    timings = measure(calls, clock, seconds, precision, cold=cache == "cold")
    faults.report_all()
    found = {n: _measurement(n or own, t, clock, cache) for n, t in timings.items()}
    return Benchmark(found.pop(""), found)


def _named(peers: object) -> Iterator[tuple[str, Callable[..., object]]]:
    if not isinstance(peers, Mapping):
        raise WrongType("peers", peers, "a dict of callables by their names")
    for name, peer in cast("Mapping[object, object]", peers).items():
        if not isinstance(name, str) or not name:
            raise WrongType("peers", name, "a name for each callable")
        if not callable(peer):
            raise WrongType(f"peers[{name!r}]", peer, "something that can be called")
        yield name, peer


def _bound(function: Callable[..., object], arguments: tuple[object, ...]) -> Call:
    return lambda: function(*arguments)


def _clock(function: object, arguments: tuple[object, ...], device: object) -> Clock:
    ordinal = _ordinal(function, arguments, device)
    if ordinal == HOST:
        return HostClock()
    return DeviceClock(ordinal, torch_stream(ordinal) or 0)


def _ordinal(function: object, arguments: tuple[object, ...], device: object) -> int:
    """The device whose clock counts: the named one, that of an array, or that of the module."""
    if device == "cpu":
        return HOST
    if device is not None:
        if isinstance(device, bool) or not isinstance(device, SupportsIndex):
            raise WrongType("device", device, 'the number of a device, or "cpu"')
        return operator.index(device)
    for array in _arrays(arguments):
        if array != HOST:
            return array
    origin: object = getattr(function, "origin", None)
    return 0 if isinstance(origin, tuple) and "cuda" in origin[1:2] else HOST


def _arrays(value: object) -> Iterator[int]:
    """The devices of the arrays in a value."""
    if isinstance(value, (tuple, list)):
        for item in cast("list[object]", value):
            yield from _arrays(item)
    elif isinstance(value, Mapping):
        for item in cast("Mapping[object, object]", value).values():
            yield from _arrays(item)
    else:
        try:
            array = describe(value, "argument")
        except TesseraError:
            return  # the call says what is wrong with it
        if array is not None:
            yield array.device


def _measurement(name: str, timing: Timing, clock: Clock, cache: str) -> Measurement:
    e = timing.estimate
    return Measurement(
        name, e.median, e.low, e.high, e.spread, e.least, e.confident, timing.reached,
        timing.host_bound, clock.name, cache, timing.calls, timing.samples,
    )  # fmt: skip


def _check_number(name: str, value: object, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongType(name, value, "a number")
    if not 0 < value <= most:
        raise _refused(f"`{name}` is {value}", f"give a number above 0 and up to {most:g}")


def _refused(message: str, help_: str) -> TesseraError:
    return error(diagnostic("T0859", message, helps=(help_,)))


def _shown(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"
