"""How large a run is to be, and what the parts of one take then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# Work that is counted, and what is counted of it; a rate is that many a second on one device.
WORKS = {
    "train": "rows trained on",
    "encode": "texts embedded without gradients",
    "compare": "pairs of vectors compared in a search of neighbours",
    "translate": "texts translated there and back",
}


@dataclass(frozen=True)
class Scale:
    """The size of a run that is not made: what it reads, and what it runs on.

    Args:
        texts: How many it trains on.
        nodes: How many machines.
        devices: How many each of them has; a process runs on each device.
        rates: How much work is done a second by a device, by WORK or WORK.STAGE.
        bandwidth: Bytes a second that a process sends or receives.
    """

    texts: int
    nodes: int = 1
    devices: int = 1
    rates: Mapping[str, float] = field(default_factory=dict)
    bandwidth: float | None = None

    @property
    def processes(self) -> int:
        """How many run at once."""
        return self.nodes * self.devices

    def rate(self, work: str, stage: str) -> float | None:
        """Return the rate that is given for a stage, or for all."""
        return self.rates.get(f"{work}.{stage}", self.rates.get(work))

    def on_wires(self, size: float) -> float:
        """Return what of a file on a disk that all nodes share comes over a process's wire: each
        process reads it whole, to check it.
        """
        return size if self.nodes > 1 else 0.0


@dataclass(frozen=True)
class Demand:
    """What a part of a stage takes at a scale.

    Args:
        what: The part, in words.
        work: Which of `WORKS` it is; nothing where it takes no time worth counting.
        count: How much of that work each process does.
        measure: What times the work here and returns its rate, None where it cannot.
        disk: Bytes that it leaves.
        beside: Bytes that it needs more while it works.
        wire: Bytes that each process sends or receives.
        held: Bytes in the memory of each process until the stage ends.
        peak: Bytes there only while it works.
    """

    what: str
    work: str = ""
    count: float = 0.0
    measure: Callable[[], float | None] = lambda: None
    disk: float = 0.0
    beside: float = 0.0
    wire: float = 0.0
    held: float = 0.0
    peak: float = 0.0
