"""What a run leaves on disk: every file and folder appears whole or not at all."""

from __future__ import annotations

import logging
import os
import platform
import re
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from st_jtcse import processes
from st_jtcse.atomic import check_new
from st_jtcse.errors import UserError
from st_jtcse.hashing import sha256
from st_jtcse.hub.card_results import TRAINING_RECORD
from st_jtcse.ownership import (
    LIST,
    adopt,
    check_folder,
    check_lock,
    check_place,
    claim,
    claim_hidden,
    in_the_way,
    is_lock,
    is_ours,
    is_taken,
    own_copy,
    partials,
    remove_file,
    remove_folder,
    remove_ours,
    remove_partials,
    replace_ours,
    take_folder,
)
from st_jtcse.recipe.ability import abilities
from st_jtcse.recipe.load import load_recipe, resolved_yaml
from st_jtcse.recipe.schema import STAGE_PREFIX, Recipe, StageSpec
from st_jtcse.records import StageRecord, read
from st_jtcse.reports.run_report import PAGE
from st_jtcse.training.checkpoints import claim_older, is_checkpoint, is_saved, same_data

logger = logging.getLogger(__name__)

RECIPE, RESULTS, LOG = "recipe.yaml", "results.json", "run.log"
_LOCK, _OWNER = ".in-use.lock", ".in-use"
_KIND = "a run of st-train"
_EVALUATIONS = "eval"  # The trainer makes this folder for its evaluators.


@dataclass(frozen=True)
class RunFolder:
    """The output folder of one run, created by :meth:`open`."""

    path: Path

    def check(self, recipe: Recipe, resume: bool) -> None:
        """Raise UserError if the folder holds something else, or a run of this recipe that was not
        asked to continue.
        """
        if not (self.path / RECIPE).is_file():
            check_folder(self.path, _KIND)
            # What a run left that was killed before it wrote its recipe is no reason to refuse the
            # next one.
            if self.path.exists() and not self._names() <= {LIST}:
                check_new(self.path)
            place = None if recipe.cache_dir is None else Path(recipe.cache_dir).absolute()
            if place is not None and place.is_relative_to(self.path.absolute()):
                raise UserError(
                    f"cache_dir {place} lies in the output folder, which has to be empty; choose "
                    "another."
                )
        elif not self.holds(recipe):
            raise UserError(
                f"{self.path} holds the run of another recipe; choose another folder with "
                f"--output-dir, or repeat that recipe ({self.path / RECIPE}) with --resume."
            )
        elif not resume:
            raise UserError(
                f"{self.path} holds a run of this recipe already; continue it with --resume, or "
                "choose another folder with --output-dir."
            )

    @contextmanager
    def open(self, recipe: Recipe, resume: bool) -> Iterator[None]:
        """Claim the folder for a recipe and keep others out, or continue its run.

        Where the block fails, a claim that nothing has come of is given up. Raises as
        :meth:`check`.
        """
        made: list[Path] = []
        with ExitStack() as held:
            # In a distributed run one process writes; the others must not look before it has.
            claims = processes.rank() == 0 and not (self.path / RECIPE).is_file()
            if claims:
                self.check(recipe, resume)
                made = take_folder(self.path, _KIND)
                held.callback(_remove_empty, made)
                held.enter_context(self.in_use())
                # Another run may have begun here before the lock was had.
                self.check(recipe, resume)
                replace_ours(self.path / RECIPE, resolved_yaml(recipe))
            elif processes.rank() == 0:
                self.check(recipe, resume)
            try:
                processes.wait_for_all()
                yield
            except BaseException:
                if claims and self._is_bare():
                    # So that the recipe can be corrected: it would be another one.
                    for name in (LOG, RECIPE):
                        remove_file(self.path / name)
                raise

    def _names(self) -> set[str]:
        """Return the names of what lies in the folder, but for what every run that is at work
        there, or was killed, has there.
        """
        passing = {_OWNER, LOG, *partials(self.path)}
        names = {path.name for path in self.path.iterdir()}
        names -= {name for name in passing if is_ours(self.path / name)}
        return names - ({_LOCK} if is_lock(self.path / _LOCK) else set())

    def _is_bare(self) -> bool:
        return self._names() <= {LIST, RECIPE}

    def check_places(self, stages: Iterable[str]) -> None:
        """Raise UserError where something lies that is not the run's, and the run is going to
        write.
        """
        check_place(self.path / RESULTS, self.path / PAGE)
        for stage in map(self.stage, stages):
            if not (stage / TRAINING_RECORD).is_file():
                check_place(*filter(_is_of_training, _entries(stage)))

    def adopt_older(self, stages: Iterable[str], more: Sequence[str] = ()) -> None:
        """Make the lists that a version which made none had left out: what lies under the names
        that it used, and `more`, counts as the run's.
        """
        if os.path.lexists(self.path / LIST) or not (self.path / RECIPE).is_file():
            return
        hidden = list(more)
        for name in stages:
            hidden += [f".{name}.new", f".{name}.old"]
            stage = self.stage(name)
            done = (stage / TRAINING_RECORD).is_file() or os.path.lexists(stage / LIST)
            found = [] if done else list(filter(_is_of_training, _entries(stage)))
            if found:
                adopt(stage, None, [path.name for path in found])
                claim_older(found)
        # Last, since it says that all is done.
        adopt(self.path, _KIND, [RECIPE, RESULTS, PAGE, _OWNER, *hidden])

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
        check_lock(path)
        # A file that its owner has just removed is no lock: filelock sees that, and tries again.
        lock = FileLock(path, timeout=0.3, poll_interval=0.05)
        try:
            lock.acquire()
        except Timeout:
            told = ""
            if owner.is_file():
                told = " ".join(owner.read_text(encoding="utf-8", errors="replace").split())[:200]
            raise UserError(
                f"{self.path} is in use by {told or 'another process'}; wait for it, or stop it."
            ) from None
        try:
            remove_partials(self.path)
            replace_ours(owner, f"process {os.getpid()} on {platform.node()}")
            yield
        finally:
            # Before it is released, lest another run's is removed; Windows keeps open files, and
            # filelock removes it.
            with suppress(OSError):
                remove_file(owner)
            with suppress(OSError):
                if set(os.listdir(self.path)) <= {_LOCK, LIST}:
                    (self.path / LIST).unlink()
            with suppress(OSError):
                path.unlink()
            lock.release()

    def expected(self, names: Sequence[str]) -> list[Path]:
        """Return what a run of stages leaves."""
        return [self.path / name for name in (RECIPE, *names, RESULTS, PAGE)]

    def stage(self, name: str) -> Path:
        """Return a stage's folder: checkpoints while it runs, then the saved model."""
        return self.path / name

    def holds_work(self, names: Sequence[str]) -> bool:
        """Whether a run has left checkpoints or models of any of these stages."""
        if not self.path.is_dir():
            return False
        of_stages = (
            [self.stage(name), *self._hidden(name, "new"), *self._hidden(name, "old")]
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
                fault = "is missing"
                if path.is_file():
                    fault = "is damaged: its hash differs from its record"
                raise UserError(f"{path} {fault}; {self._again(name)}.")

    def check_earlier(self, chosen: Sequence[str], stages: Mapping[str, StageSpec]) -> None:
        """Raise UserError where a stage to start from is neither chosen nor finished."""
        for name in chosen:
            for earlier in stages[name].earlier:
                if earlier not in chosen and self.record(earlier) is None:
                    raise UserError(
                        f"--stage: {name!r} starts from {STAGE_PREFIX}{earlier}, which is not "
                        f"finished in {self.path}; add --stage {earlier}."
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
                    "had not been interrupted; start anew without it, in another folder with "
                    "--output-dir."
                )

    def _again(self, name: str) -> str:
        return (
            f"restore it, or delete {self.stage(name)} and repeat the command with --resume to "
            "train the stage again"
        )

    def begin(self, name: str) -> None:
        """Claim the places in a stage's folder that its training writes to, beside whatever lies
        there.
        """
        stage = self.stage(name)
        _entries(stage)
        stage.mkdir(parents=True, exist_ok=True)
        for reserved in _beside_checkpoints():
            claim(stage / reserved)

    def staging(self, name: str) -> Path:
        """Return an empty folder to build a stage's final form in."""
        path = claim_hidden(self.path, f"{name}.new")
        path.mkdir()
        return path

    def finish(self, name: str, new: Path) -> None:
        """Put the folder built in :meth:`staging`, which holds the stage's record, in place of its
        checkpoints.

        What else lay in the stage's folder is kept there; beside the model's file of the same name
        as NAME.kept.
        """
        final, old = self.stage(name), claim_hidden(self.path, f"{name}.old")
        _entries(final)
        if final.exists():
            final.rename(old)
        new.rename(final)
        _settle(old, final)

    def adopt(self, name: str, finished: Path) -> None:
        """Take a stage from the folder where another run finished it just as it would here; its
        files are linked.
        """
        record = RunFolder(finished.parent).record(finished.name)
        assert record is not None
        told = {*record.weights_sha256, *record.settings_sha256}
        new = self.staging(name)
        # Files of finished stages are never changed, only replaced.
        for path in sorted(finished.rglob("*")):
            file = path.relative_to(finished)
            if path.is_file() and (file.as_posix() in told or is_saved(path.name)):
                (new / file).parent.mkdir(parents=True, exist_ok=True)
                _link_or_copy(path, new / file)
        self.finish(name, new)

    def recover(self, name: str) -> None:
        """Complete a :meth:`finish` that was cut off, and remove what one left that was cut off
        before it.
        """
        final = self.stage(name)
        built, replaced = (self._hidden(name, suffix) for suffix in ("new", "old"))
        for new in built:
            if replaced and not os.path.lexists(final) and (new / TRAINING_RECORD).is_file():
                new.rename(final)
            else:
                remove_folder(new, is_saved)
        if (final / TRAINING_RECORD).is_file():
            for old in replaced:
                _settle(old, final)

    def _hidden(self, name: str, suffix: str) -> list[Path]:
        # Earlier versions' have no random ending.
        names = re.compile(rf"\.{re.escape(name)}\.{suffix}(\.[0-9a-f]{{8}})?")
        found = (path for path in self.path.iterdir() if names.fullmatch(path.name))
        return sorted(path for path in found if path.is_dir() and is_ours(path))


def tell_if_nothing_to_resume(place: Path, folders: Sequence[Path], names: Sequence[str]) -> None:
    """Say it where runs of these stages, in folders at a place, have left nothing to go on from."""
    if not any(RunFolder(folder).holds_work(names) for folder in folders):
        logger.info("nothing to resume in %s; starting anew", place)


def _what_is_computed(recipe: Recipe) -> dict[str, Any]:
    """Return what a recipe says but where its run lies and what is told of it."""
    beside = {"output_dir", "cache_dir", "card", "push", "description", "method", "needs"}
    # As written: two data blocks of equal values may change other keys of the recipe's.
    return recipe.model_dump(mode="json", exclude=beside)


def _entries(stage: Path) -> list[Path]:
    """Return what lies in a stage's folder; raises UserError where that is no folder, or another
    command's.
    """
    if not os.path.lexists(stage):
        return []
    if stage.is_symlink() or not stage.is_dir():
        raise in_the_way(stage)
    if is_taken(stage):
        raise in_the_way(stage / LIST)
    return list(stage.iterdir())


def _is_of_training(path: Path) -> bool:
    """Whether a path in a stage's folder has a name that its training writes under."""
    return path.name in _beside_checkpoints() or is_checkpoint(path.name)


def _beside_checkpoints() -> list[str]:
    """Return the names of the folders that a training has beside its checkpoints."""
    names = [_EVALUATIONS]
    for ability in abilities():
        names += ability.folders
    return names


def _settle(old: Path, final: Path) -> None:
    """Remove what a stage's training left, and bring what else lay in its folder into the finished
    one.
    """
    if old.exists():
        remove_ours(old, is_saved)
        _bring_over(old, final)


def _bring_over(source: Path, target: Path) -> None:
    for path in list(source.iterdir()):
        goal = target / path.name
        folders = [place.is_dir() and not place.is_symlink() for place in (path, goal)]
        if all(folders):
            _bring_over(path, goal)
            continue
        while os.path.lexists(goal):
            goal = goal.with_name(f"{goal.name}.kept")
        path.rename(goal)
    source.rmdir()


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _link_or_copy(source: Path, target: Path) -> None:
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
    """Append all that is logged to a folder's run.log; where it cannot be written, or another's
    lies there, that is said once, and no fault.
    """
    handler = _log_file(folder / LOG)
    if handler is None:
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


def _log_file(path: Path) -> _LogFile | None:
    try:
        if not os.path.lexists(path):
            # By its first line it is known.
            replace_ours(path, f"Log {secrets.token_hex(8)} of st-train\n", grows=True)
        if is_ours(path):
            own_copy(path)
            return _LogFile(path, encoding="utf-8", errors="backslashreplace")
        logger.warning("%s is not the log of this run, which goes on without one.", path)
    except OSError as error:
        _tell(path, error)
    return None


def _tell(path: object, error: BaseException | None) -> None:
    reason = getattr(error, "strerror", None) or error
    logger.warning("%s cannot be written (%s); the run goes on without it.", path, reason)
