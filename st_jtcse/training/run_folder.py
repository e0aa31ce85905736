"""What a run leaves on disk: every file and folder appears whole or not at all."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from st_jtcse import processes
from st_jtcse.atomic import write_atomically
from st_jtcse.errors import UserError
from st_jtcse.hashing import sha256
from st_jtcse.hub.card_results import TRAINING_RECORD
from st_jtcse.recipe.load import load_recipe, resolved_yaml
from st_jtcse.recipe.schema import STAGE_PREFIX, Recipe, StageSpec
from st_jtcse.records import StageRecord, read
from st_jtcse.reports.run_report import PAGE
from st_jtcse.training.checkpoints import same_data

logger = logging.getLogger(__name__)

RECIPE, RESULTS, LOG = "recipe.yaml", "results.json", "run.log"
_LOCK, _OWNER = ".in-use.lock", ".in-use"
_BEGUN = {f".{RECIPE}.partial", _LOCK, _OWNER, LOG}


@dataclass(frozen=True)
class RunFolder:
    """The output folder of one run, created by :meth:`open`."""

    path: Path

    @contextmanager
    def open(self, recipe: Recipe, resume: bool) -> Iterator[None]:
        """Claim the folder for a recipe and keep others out, or continue its run.

        Where the block fails, a claim that nothing has come of is given up. Raises UserError if the
        folder holds something else, or a run of this recipe that was not asked to continue.
        """
        # In a distributed run one process writes; the others must not look before it has.
        claimed = processes.rank() == 0 and self._claim(recipe, resume)
        try:
            with self.in_use() if claimed else nullcontext():
                try:
                    processes.wait_for_all()
                    yield
                except BaseException:
                    if claimed and self._files() <= {RECIPE} | _BEGUN:
                        # So that the recipe can be corrected: it would be another one.
                        self._clear()
                    raise
        finally:
            if processes.rank() == 0:
                with suppress(OSError):
                    self.path.rmdir()  # Which only an empty folder lets do.

    def _files(self) -> set[str]:
        return {
            path.relative_to(self.path).as_posix()
            for path in self.path.rglob("*")
            if not path.is_dir()
        }

    def _clear(self) -> None:
        # The lock and its owner go last: without them another run could begin here.
        for path in self.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in {_LOCK, _OWNER}:
                path.unlink()

    def _claim(self, recipe: Recipe, resume: bool) -> bool:
        """Return whether the folder was free."""
        if not (self.path / RECIPE).is_file():
            # What a run left that was killed while it wrote its recipe is no reason to refuse the
            # next one.
            if self.path.exists() and (
                not self.path.is_dir() or {path.name for path in self.path.iterdir()} - _BEGUN
            ):
                raise UserError(
                    f"{self.path} is not empty; choose another folder with --output-dir."
                )
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path / RECIPE, resolved_yaml(recipe))
            return True
        if not self.holds(recipe):
            raise UserError(
                f"{self.path} holds the run of another recipe; choose another folder with "
                "--output-dir, or repeat that "
                f"recipe ({self.path / RECIPE}) with --resume."
            )
        if not resume:
            raise UserError(
                f"{self.path} holds a run of this recipe already; continue it with --resume, or "
                "choose another folder "
                "with --output-dir."
            )
        return False

    def holds(self, recipe: Recipe) -> bool:
        """Whether the folder is a run of this recipe, wherever it lies now.

        Raises UserError where the recipe that it holds cannot be read.
        """
        path = self.path / RECIPE
        if not path.is_file():
            return False
        try:
            held = load_recipe(str(path)).recipe
        except UserError as error:
            told = (
                f"{self.path} holds a run whose recipe cannot be read; restore {path}, or choose "
                "another folder with --output-dir."
            )
            raise UserError(told, *error.faults) from error
        return _what_is_computed(held) == _what_is_computed(recipe)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep other runs out of the folder; the lock dies with its process, and a run that meets
        it is told whose.
        """
        # The owner is told in a file of its own: where locks are mandatory, as on Windows, nobody
        # reads a locked one.
        path, owner = self.path / _LOCK, self.path / _OWNER
        # A file that its owner has just removed is no lock: filelock sees that, and tries again.
        lock = FileLock(path, timeout=0.3, poll_interval=0.05)
        try:
            lock.acquire()
        except Timeout:
            told = owner.read_text(encoding="utf-8").strip() if owner.is_file() else ""
            raise UserError(
                f"{self.path} is in use by {told or 'another process'}; wait for it, or stop it."
            ) from None
        try:
            owner.write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")
            yield
        finally:
            # Before it is released, lest another run's is removed; Windows keeps open files, and
            # filelock removes it.
            for file in (owner, path):
                with suppress(OSError):
                    file.unlink()
            lock.release()

    def expected(self, names: Sequence[str]) -> list[Path]:
        """Return what a run of stages leaves."""
        return [self.path / name for name in (RECIPE, *names, RESULTS, PAGE)]

    def stage(self, name: str) -> Path:
        """Return a stage's folder: checkpoints while it runs, then the saved model."""
        return self.path / name

    def holds_work(self, names: Sequence[str]) -> bool:
        """Whether a run has left checkpoints or models of any of these stages."""
        of_stages = (
            [self.stage(name), self._hidden(name, "new"), self._hidden(name, "old")]
            for name in names
        )
        places = (place for found in of_stages for place in found if place.is_dir())
        return any(any(place.iterdir()) for place in places)

    def record(self, name: str) -> StageRecord | None:
        """Return a finished stage's results, None if it is not finished."""
        path = self.stage(name) / TRAINING_RECORD
        if not path.is_file():
            return None
        record = read(StageRecord, path, self._again(name))
        if record.name != name:
            raise UserError(f"{path} is of the stage {record.name!r}; {self._again(name)}.")
        return record

    def check_model(self, name: str) -> None:
        """Raise UserError if the files of a finished stage's model are not those that its record
        tells.
        """
        record = self.record(name)
        if record is None:
            return
        # Records of 0.1.0 tell of weights alone.
        for file, digest in (record.weights_sha256 | record.settings_sha256).items():
            path = self.stage(name) / file
            if not path.is_file() or sha256(path) != digest:
                fault = (
                    "is damaged: its hash differs from its record"
                    if path.is_file()
                    else "is missing"
                )
                raise UserError(f"{path} {fault}; {self._again(name)}.")

    def check_earlier(self, chosen: Sequence[str], stages: Mapping[str, StageSpec]) -> None:
        """Raise UserError where a stage to start from is neither chosen nor finished."""
        for name in chosen:
            for earlier in stages[name].earlier:
                if earlier not in chosen and self.record(earlier) is None:
                    raise UserError(
                        f"--stage: {name!r} starts from {STAGE_PREFIX}{earlier}, which is not "
                        f"finished in {self.path}; "
                        f"add --stage {earlier}."
                    )

    def check_resumable(
        self,
        chosen: Sequence[str],
        stages: Mapping[str, StageSpec],
        data_sha256: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Raise UserError where going on, with data of these hashes by stage, would not give what a
        whole run gives.
        """
        if processes.rank() == 0:
            for name in dict.fromkeys(
                name for last in chosen for name in (*stages[last].earlier, last)
            ):
                self.check_model(name)
        for name in chosen:
            record = self.record(name)
            without = [
                key for key in ("save_only_model", "ignore_data_skip") if stages[name].args.get(key)
            ]
            if record is not None:
                same_data(self.stage(name), record.data_sha256, data_sha256[name])
            elif without:
                raise UserError(
                    f"--resume: stage {name!r} sets args.{without[0]}, and cannot go on as if it "
                    "had not been "
                    "interrupted; start anew without it, in another folder with --output-dir."
                )

    def _again(self, name: str) -> str:
        return (
            f"restore it, or delete {self.stage(name)} and repeat the command with --resume to "
            "train the stage again"
        )

    def staging(self, name: str) -> Path:
        """Return an empty folder to build a stage's final form in."""
        path = self._hidden(name, "new")
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path

    def finish(self, name: str) -> None:
        """Put the folder built by :meth:`staging`, which holds the stage's record, in place of its
        checkpoints.
        """
        new, old, final = self._hidden(name, "new"), self._hidden(name, "old"), self.stage(name)
        shutil.rmtree(old, ignore_errors=True)
        if final.exists():
            final.rename(old)
        new.rename(final)
        shutil.rmtree(old, ignore_errors=True)

    def adopt(self, name: str, finished: Path) -> None:
        """Take a stage from the folder where another run finished it just as it would here; its
        files are linked.
        """
        # Files of finished stages are never changed, only replaced.
        shutil.copytree(
            finished, self.staging(name), copy_function=_link_or_copy, dirs_exist_ok=True
        )
        self.finish(name)

    def recover(self, name: str) -> None:
        """Complete a :meth:`finish` that was cut off between its two renames."""
        new, final = self._hidden(name, "new"), self.stage(name)
        if (
            not final.exists()
            and self._hidden(name, "old").exists()
            and (new / TRAINING_RECORD).is_file()
        ):
            new.rename(final)
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(self._hidden(name, "old"), ignore_errors=True)

    def _hidden(self, name: str, suffix: str) -> Path:
        return self.path / f".{name}.{suffix}"


def tell_if_nothing_to_resume(place: Path, folders: Sequence[Path], names: Sequence[str]) -> None:
    """Say it where runs of these stages, in folders at a place, have left nothing to go on from."""
    if not any(RunFolder(folder).holds_work(names) for folder in folders):
        logger.info("nothing to resume in %s; starting anew", place)


def _what_is_computed(recipe: Recipe) -> dict[str, Any]:
    """Return what a recipe says but where its run lies and what is told of it."""
    beside = {"output_dir", "cache_dir", "card", "push", "description", "method", "needs"}
    # As written: two data blocks of equal values may change other keys of the recipe's.
    return recipe.model_dump(mode="json", exclude=beside)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # A file system without links.
        shutil.copy2(source, target)


class _LogFile(logging.FileHandler):
    """Gives up at the first line that the file does not take."""

    def handleError(self, record: logging.LogRecord) -> None:
        logging.root.removeHandler(self)
        _tell(self.baseFilename, sys.exception())


@contextmanager
def run_log(folder: Path) -> Iterator[None]:
    """Append all that is logged to a folder's run.log; where it cannot be written that is said
    once, and no fault.
    """
    path = folder / LOG
    try:
        handler = _LogFile(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        _tell(path, error)
        yield
        return
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.root.addHandler(handler)
    try:
        yield
    finally:
        logging.root.removeHandler(handler)
        with suppress(OSError):  # What a full disk did not take is told already.
            handler.close()


def _tell(path: object, error: BaseException | None) -> None:
    reason = getattr(error, "strerror", None) or error
    logger.warning("%s cannot be written (%s); the run goes on without it.", path, reason)
