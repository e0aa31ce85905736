"""The processes of a distributed run: which one writes, what they share, and how they wait and
end together.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from st_jtcse.errors import Ended, ProcessLost, UserError

# What the processes are told by those who start them.
_RANK, _SIZE, _PORT = "RANK", "WORLD_SIZE", "MASTER_PORT"
_NUMBERS = (_RANK, "LOCAL_RANK", _SIZE, "LOCAL_WORLD_SIZE", _PORT)
_RANKS = (_RANK, "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_LAST_PORT = 65535
# Keys of the store by which the processes have found each other: how the run ends, and how many
# processes know that, have left the last barrier, or need the store no more.
_ENDED, _KNOWN = "st-jtcse/ended", "st-jtcse/known"
_LEFT, _GONE = "st-jtcse/left", "st-jtcse/gone"
_LOOK = 0.2  # Seconds between two looks at the store.
_PATIENCE = 20.0  # Seconds to wait for the others at the end,
_MOMENT = 2.0  # and for those that may be unable to come.


def rank() -> int:
    """Return this process's number; 0 outside a distributed run."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    return 0


def count() -> int:
    """Return the number of processes; 1 outside a distributed run."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    return 1


def of_first(value: Tensor) -> Tensor:
    """Return a tensor as the first process has it."""
    if count() > 1:
        dist.broadcast(value, src=0)
    return value


def mean(value: Tensor) -> Tensor:
    """Return the mean of all processes' tensors."""
    if count() > 1:
        value = value / count()
        dist.all_reduce(value)
    return value


def in_any(flag: bool) -> bool:
    """Whether a flag is set in any process."""
    if count() == 1:
        return flag
    found = torch.tensor(int(flag))
    dist.all_reduce(found, dist.ReduceOp.MAX, group=_waiting())
    return bool(found)


def gathered(value: Any) -> list[Any]:
    """Return every process's value, in their order."""
    found: list[Any] = [value] * count()
    if count() > 1:
        dist.all_gather_object(found, value, group=_waiting())
    return found


def wait_for_all() -> None:
    """Go on when every process has come here.

    Raises Ended where another one has failed instead, and what torch raises where one is gone.
    """
    if count() == 1:
        return
    # Looked at rather than waited for: torch hears neither of a Ctrl-C nor of another's end.
    work = dist.barrier(group=_waiting(), async_op=True)
    while not work.is_completed():
        if _news is not None and _news.end is not None:
            raise Ended(_news.end.status, "")
        time.sleep(0.005)
    work.wait()


@cache
def _waiting() -> Any:
    """Return the group in which processes wait for one that works alone, however long it takes."""
    return dist.new_group(backend="gloo", timeout=timedelta(days=30))


def check_environment() -> None:
    """Raise UserError where the environment does not say which of how many processes this is."""
    numbers = {}
    for name in _NUMBERS:
        if name not in os.environ:
            continue
        try:
            numbers[name] = int(os.environ[name])
        except ValueError:
            raise _misled(f"{name}: expected a whole number, found {os.environ[name]!r}") from None
    size, number, port = numbers.get(_SIZE, 1), numbers.get(_RANK, 0), numbers.get(_PORT, 1)
    if size < 1:
        raise _misled(f"{_SIZE}: expected at least 1, found {size}")
    if _SIZE in numbers and not 0 <= number < size:
        raise _misled(f"{_RANK}: expected 0 to {size - 1}, below {_SIZE}, found {number}")
    if not 0 < port <= _LAST_PORT:
        raise _misled(f"{_PORT}: expected a port from 1 to {_LAST_PORT}, found {port}")
    if size > 1 and not any(name in os.environ for name in _RANKS):
        raise _misled(f"{_SIZE} is {size}, and {_RANK} is not set")


def _misled(fact: str) -> UserError:
    return UserError(
        f"Environment variable {fact}; correct or unset it, or start the processes by torchrun or "
        "accelerate launch, which set it."
    )


class ProcessesApart(UserError):
    """The processes of a run do not find each other."""


def join(*, use_cpu: bool, patience: timedelta | None = None) -> None:
    """Find the other processes of a distributed run, if this is one.

    Raises ProcessesApart where they are not found, within `patience` or torch's own.
    """
    global _news
    from accelerate import PartialState

    if _are_several() and not torch.accelerator.is_available():
        # Else accelerate takes each process for a run of its own.
        os.environ["ACCELERATE_USE_CPU"] = "true"
        use_cpu = True
    try:
        PartialState(cpu=use_cpu, **({} if patience is None else {"timeout": patience}))
    except (ValueError, dist.DistError) as error:
        reason = str(error).partition("\n")[0][:300].rstrip(".")
        raise ProcessesApart(
            f"The processes of this run do not find each other ({reason}); correct MASTER_ADDR and "
            "MASTER_PORT, or start them by torchrun or accelerate launch."
        ) from error
    if count() > 1:
        _waiting()
        _news = _News()
        _news.start()


def _are_several() -> bool:
    return int(os.environ.get(_SIZE, 1)) > 1


@contextmanager
def together(outcome: Callable[[BaseException], tuple[int, str]]) -> Iterator[None]:
    """Have all processes of a run end alike, whichever of them fails, and one say why.

    In a distributed run, which the block may :func:`join`, it raises Ended for an error in any
    process. `outcome` returns the exit status that an error comes to, and the line about it.
    """
    try:
        yield
        _leave()
    except (Exception, KeyboardInterrupt) as error:
        apart = _news is None and _are_several() and not isinstance(error, ProcessesApart)
        if apart and isinstance(error, UserError):
            # What one process cannot read, none can as a rule: one is to say so.
            with suppress(UserError):
                join(use_cpu=False, patience=timedelta(seconds=_PATIENCE))
        if _news is None:
            raise
        raise _end(_news, error, outcome) from error
    finally:
        if _news is not None:
            _news.stop()


def _leave() -> None:
    """Leave when all are ready: one that goes first cuts off those still in a barrier."""
    if _news is None:
        return
    wait_for_all()
    _news.stop()
    _news.part(count())
    dist.destroy_process_group()


def _end(
    news: _News, error: BaseException, outcome: Callable[[BaseException], tuple[int, str]]
) -> Ended:
    """Tell the others how this process ends, unless one of them has ended before, and return what
    is left to say.
    """
    with suppress(ValueError):  # Outside the main thread.
        # What a launcher sends when the first process has ended: this one ends by itself.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    news.stop()
    lost = is_lost(error)
    if news.end is not None and (lost or isinstance(error, Ended)):
        news.part(count(), _MOMENT)
        return Ended(news.end.status, "")
    own = _Ending(rank(), *outcome(ProcessLost() if lost else error))
    first = news.tell(own)
    news.wait_for_knowledge(count() - lost)
    news.part(count() - lost, _MOMENT)
    is_said = first.rank != own.rank and (lost or first.told == own.told)
    return Ended(first.status, "" if is_said else own.told)


def is_lost(error: BaseException) -> bool:
    """Whether an error is that of a collective in which another process is missing."""
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and "gloo" in str(error)
    )


class _Ending(NamedTuple):
    """How the first process to end did: its number, its exit status, and its line."""

    rank: int
    status: int
    told: str


class _News(threading.Thread):
    """Says to the other processes how this one ends, and hears it of them.

    It goes by the store by which the processes have found each other, since those in the middle of
    a collective take part in no other one. The first process may keep the store, and goes last.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.end: _Ending | None = None
        self._store: Any = dist.distributed_c10d._get_default_store()
        self._is_over = threading.Event()

    def run(self) -> None:
        """Look for news until there are some."""
        while self.end is None and self._store is not None and not self._is_over.wait(_LOOK):
            if self._ask("check", [_ENDED]):
                self._take(self._ask("get", _ENDED))

    def stop(self) -> None:
        """Look no more, and ask no more where the store's machine does not answer."""
        self._is_over.set()
        if self.is_alive():
            self.join(_MOMENT)
        if self.is_alive():
            self._store = None

    def tell(self, own: _Ending) -> _Ending:
        """Say how this process ends unless another has before, and return how the first did."""
        if self.end is None:
            self._take(self._ask("compare_set", _ENDED, "", json.dumps(own)))
        return self.end or own

    def wait_for_knowledge(self, number: int) -> None:
        """Wait until so many processes know how the run ends."""
        if self.end is None or self.end.rank == rank():
            self._wait_for(_KNOWN, number)

    def part(self, number: int, patience: float = _PATIENCE) -> None:
        """Go when so many processes do, the first as the last of them."""
        self._ask("add", _LEFT, 1)
        have_come = self._wait_for(_LEFT, number, patience)
        self._ask("add", _GONE, 1)
        if have_come and rank() == 0:
            self._wait_for(_GONE, number, patience)

    def _take(self, told: bytes | None) -> None:
        if told is not None:
            self.end = _Ending(*json.loads(told))
            self._ask("add", _KNOWN, 1)

    def _wait_for(self, key: str, number: int, patience: float = _PATIENCE) -> bool:
        """Wait until so many processes have counted themselves, and return whether they have."""
        until = time.monotonic() + patience
        while (found := self._ask("add", key, 0)) is not None and time.monotonic() < until:
            if found >= number:
                return True
            time.sleep(0.02)
        return False

    def _ask(self, operation: str, *given: Any) -> Any:
        """Return what the store answers; None once it is gone with the process that kept it."""
        if self._store is None:
            return None
        try:
            return getattr(self._store, operation)(*given)
        except RuntimeError:
            self._store = None
            return None


_news: _News | None = None
