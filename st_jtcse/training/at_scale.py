"""A run of another size: what its parts take, as a table and in lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from st_jtcse.recipe.scale import WORKS, Demand, Scale
from st_jtcse.reports.table import Table

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


@dataclass(frozen=True)
class Part:
    """A part of a stage: what it takes, and how much of its work a device does a second."""

    stage: str
    demand: Demand
    rate: float | None
    is_given: bool = False

    @property
    def seconds(self) -> float | None:
        """How long it works; None where its rate is not known."""
        if not self.demand.count:
            return 0.0
        return None if self.rate is None else self.demand.count / self.rate


@dataclass(frozen=True)
class StageAtScale:
    """A stage: its parts, and what a process held when it was rehearsed.

    Args:
        parts: Its parts.
        weights: Bytes of memory for the weights and what trains them, by their number.
        idle: Bytes of memory before the steps; 0 where nothing was rehearsed.
        working: Bytes at most, the steps among it.
        device: Bytes of an accelerator's memory at most.
    """

    parts: Sequence[Part]
    weights: float
    idle: int = 0
    working: int = 0
    device: int = 0

    @property
    def memory(self) -> float:
        """Bytes of memory that a process takes at most; without libraries and batch where those
        were not rehearsed.
        """
        held = sum(part.demand.held for part in self.parts)
        peak = max((part.demand.peak for part in self.parts), default=0.0)
        return held + max(self.working or self.weights, self.idle + peak)


@dataclass(frozen=True)
class Simulation:
    """A run at a scale."""

    scale: Scale
    texts: Sequence[Part]  # each text once, whichever stages read it
    stages: Mapping[str, StageAtScale]
    start: float  # seconds of the processor before the first stage
    uncounted: Sequence[str]  # keys whose work is not counted

    @property
    def parts(self) -> list[Part]:
        """The texts, and the parts of all stages."""
        return [*self.texts, *self._of_stages]

    @property
    def _of_stages(self) -> list[Part]:
        return [part for stage in self.stages.values() for part in stage.parts]

    @property
    def seconds(self) -> float:
        """How long it works, as far as rates are known."""
        return self.start + sum(part.seconds or 0.0 for part in self.parts)

    @property
    def disk(self) -> float:
        """Bytes that it leaves."""
        return sum(part.demand.disk for part in self.parts)

    @property
    def memory(self) -> float:
        """Bytes of memory that a process takes at most."""
        held = sum(part.demand.held for part in self.texts)
        return held + max((stage.memory for stage in self.stages.values()), default=0.0)

    def table(self) -> Table:
        """Return a line for each part, and one for all."""
        rows = [
            ["start and rehearsal", _time(self.start), "-", "-", "-", "-"],
            *(_row(part) for part in self.parts),
        ]
        demands = [part.demand for part in self.parts]
        beside = max((demand.beside for demand in demands), default=0.0)
        wire = sum(demand.wire for demand in demands)
        least = "" if all(part.seconds is not None for part in self.parts) else "at least "
        sizes = [self.disk, self.disk + beside, wire, self.memory]
        rows.append(["all", least + _time(self.seconds), *map(_bytes, sizes)])
        columns = ["part", "time", "disk", "disk at most", "wire", "memory"]
        scale = self.scale
        title = f"{scale.texts:,} texts, {scale.nodes} x {scale.devices} devices (nothing is run)"
        return Table(columns, rows, title)

    def lines(self) -> list[str]:
        """Say what was measured, what was given, and what is not known."""
        scale, found = self.scale, list(self._rates())
        if scale.rates:
            rates = (f"{name}={rate:g}" for name, rate in scale.rates.items())
            found.append(f"given, not measured: {', '.join(rates)}")
        if scale.processes > 1:
            found.append(
                f"each of the {scale.processes} devices is taken to be as fast as that, and none to"
                " wait for another"
            )
        wire = sum(part.demand.wire for part in self.parts)
        if wire and scale.bandwidth is None:
            found.append("the wire's speed is not known: add bandwidth=BYTES_A_SECOND for its time")
        elif wire and scale.bandwidth is not None:
            found.append(
                f"wire: {_time(wire / scale.bandwidth)} at {_bytes(scale.bandwidth)} a second "
                "(given), part of it while steps are computed; it is not in the times"
            )
        found += [told for name, stage in self.stages.items() for told in _memory(name, stage)]
        beyond = ["reading and converting the text", "saving", "cards"]
        return [*found, f"not counted: {', '.join([*beyond, *self.uncounted])}"]

    def _rates(self) -> Iterator[str]:
        """Say how fast each part worked here, or that it did not."""
        for part in self.parts:
            demand, work = part.demand, WORKS.get(part.demand.work)
            place = f"{part.stage}: {demand.what}"
            if part.rate is None and demand.count:
                yield f"{place}: no rate; add {demand.work}=RATE, {work} a second"
            elif part.rate is not None and demand.count and not part.is_given:
                yield f"{place}: {part.rate:,.0f} {work} a second, measured on {_device()}"


def _memory(name: str, stage: StageAtScale) -> Iterator[str]:
    if stage.working:
        yield f"{name}: {_bytes(stage.working)} of memory as rehearsed, libraries and batch too"
    else:
        yield (
            f"{name}: {_bytes(stage.weights)} of memory by the number of weights; libraries and "
            "batch come on top, for nothing was rehearsed"
        )
    if stage.device:
        yield f"{name}: {_bytes(stage.device)} of the accelerator's memory as rehearsed"


def _device() -> str:
    return "an accelerator" if torch.accelerator.is_available() else f"a CPU, {_threads()}"


def _threads() -> str:
    count = torch.get_num_threads()
    return f"{count} thread{'s'[: count - 1]}"


def _row(part: Part) -> list[str]:
    demand, seconds = part.demand, part.seconds
    told = "?" if seconds is None else _time(seconds)
    sizes = [demand.disk, demand.disk + demand.beside, demand.wire, demand.held + demand.peak]
    return [f"{part.stage}: {demand.what}", told, *map(_bytes, sizes)]


def _time(seconds: float) -> str:
    if not seconds:
        return "-"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} hours"


def _bytes(size: float) -> str:
    if not size:
        return "-"
    power = min(len(_UNITS) - 1, int(math.log(max(size, 1.0), 1000)))
    return f"{size / 1000**power:.1f} {_UNITS[power]}"
