"""Checks across the parts of a recipe and of the Python behind it, made on the tree so that no fault hides another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pydantic import ValidationError

from st_jtcse.training.components import argument_faults, loss_faults, loss_names
from st_jtcse.training.faults import Fault, from_pydantic
from st_jtcse.training.loss_needs import (
    LABELS_OF,
    LABELS_OF_CROSS_ENCODERS,
    OF_ONE_COLUMN,
    OF_SENTENCES,
    OF_SEVERAL_OUTPUTS,
    OF_TEACHERS,
    OF_TWO_COLUMNS,
    classes_of,
    needs_teachers,
)
from st_jtcse.training.schema import STAGE_PREFIX, DataSpec, LossSpec
from st_jtcse.training.yaml_source import Loc, dotted
from st_jtcse.wording import nearest, shown, unknown

# Files of a run that lie beside the stages' folders.
RESERVED_STAGE_NAMES = frozenset({"recipe.yaml", "results.json"})

_NO_SOURCE = "expected exactly one of 'train' and 'pairs', found neither. Give one of them."
_Stages = list[tuple[int, dict[str, Any]]]


def check(data: dict[str, Any]) -> list[Fault]:
    """Return the faults that validation of single blocks cannot see.

    Args:
        data: A recipe's tree, valid or not; parts of a wrong type are passed over, validation tells them.
    """
    listed = data.get("stages")
    items = listed if isinstance(listed, list) else []
    stages = [(index, stage) for index, stage in enumerate(items) if isinstance(stage, dict)]
    return [
        *_names(stages),
        *_references(stages),
        *_data(data, stages),
        *_labels(data, stages),
        *_views(data, stages),
        *_classes(data, stages),
        *_teachers(data, stages),
        *_pair_scores(data, stages),
        *_losses(stages),
        *_arguments(data, stages),
        *_evaluation(data, stages),
        *_several_outputs(data, stages),
        *_push(data, stages),
    ]


def _is_cross_encoder(stage: dict[str, Any]) -> bool:
    return _mapping(stage.get("model")).get("cross_encoder") is not None


def _outputs(stage: dict[str, Any]) -> int | None:
    """Return the outputs of a stage's cross-encoder; None if it is none, or the number is none."""
    outputs = _mapping(stage.get("model")).get("num_labels", 1)
    return outputs if _is_cross_encoder(stage) and isinstance(outputs, int) else None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _names(stages: _Stages) -> Iterator[Fault]:
    first: dict[str, int] = {}
    for index, stage in stages:
        name = stage.get("name")
        if not isinstance(name, str):
            continue
        loc: Loc = ("stages", index, "name")
        # Names become folders, which some file systems tell apart by more than upper and lower case only.
        folded = name.casefold()
        if folded in RESERVED_STAGE_NAMES:
            yield Fault(loc, f"expected a name free for a folder, found '{name}', a file of the run. Choose another.")
        elif name.isascii() and name.isdigit():
            yield Fault(loc, f"expected a name that --set cannot read as a position, found '{name}'. Add a letter.")
        elif folded in first:
            yield Fault(
                loc, f"expected a name of its own, found '{name}', taken by stages[{first[folded]}]. Choose another."
            )
        first.setdefault(folded, index)


def _references(stages: _Stages) -> Iterator[Fault]:
    names = [stage.get("name") for _, stage in stages]
    for place, (index, stage) in enumerate(stages):
        earlier = [name for name in names[:place] if isinstance(name, str)]
        for below, reference in _models(stage):
            target = reference.removeprefix(STAGE_PREFIX)
            if not reference.startswith(STAGE_PREFIX) or target in earlier:
                continue
            if target == stage.get("name"):
                found = "this stage itself"
            else:
                found = "a later stage" if target in names[place:] else "no stage of this recipe"
            near = nearest(target, earlier)
            if near:
                way = f"Did you mean '{STAGE_PREFIX}{near}'?"
            else:
                way = f"Use one of: {', '.join(earlier)}." if earlier else "No stage comes before; name a model."
            yield Fault(
                ("stages", index, *below), f"expected an earlier stage, found {shown(reference)}, {found}. {way}"
            )


def _models(stage: dict[str, Any]) -> Iterator[tuple[Loc, str]]:
    model = _mapping(stage.get("model"))
    written: list[tuple[Loc, Any]] = [(("model", key), model.get(key)) for key in ("base", "cross_encoder")]
    written += [(("model", "towers", at), tower) for at, tower in enumerate(_list(model.get("towers")))]
    for block, items in ((("model", "members"), model.get("members")), (("teachers",), stage.get("teachers"))):
        written += [((*block, at, "model"), _mapping(item).get("model")) for at, item in enumerate(_list(items))]
    return ((loc, reference) for loc, reference in written if isinstance(reference, str))


def _data(data: dict[str, Any], stages: _Stages) -> Iterator[Fault]:
    common = data.get("data")
    if isinstance(common, dict) and not _has_source(common):
        yield Fault(("data",), _NO_SOURCE)
    for index, stage in stages:
        own = stage.get("data")
        if stage.get("loss") is not None and own is None and common is None:
            yield Fault(
                ("stages", index),
                "expected training data of the stage or the recipe, found none. Add 'data: {train: FILE}' to either.",
            )
        if not isinstance(own, dict) or _has_source(own):
            continue
        if common is None:
            yield Fault(("stages", index, "data"), _NO_SOURCE)
        elif _is_valid(own) and _is_valid(common):
            try:
                DataSpec.model_validate(_data_of(data, index, stage)[0])
            except ValidationError as error:
                yield from (
                    Fault(("stages", index, "data"), f"{fault.text} The rest is the recipe's 'data'.")
                    for fault in from_pydantic(error)
                )


def _has_source(block: dict[str, Any]) -> bool:
    return block.get("train") is not None or block.get("pairs") is not None


def _is_valid(block: Any) -> bool:
    """Whether a data block's own validation, which is told with the whole recipe's, finds nothing."""
    try:
        DataSpec.model_validate(block)
    except ValidationError:
        return False
    return True


def _data_of(data: dict[str, Any], index: int, stage: dict[str, Any]) -> tuple[dict[str, Any], Callable[[str], Loc]]:
    """Return the data block a stage trains on, and where each of its keys is written."""
    own, common = _mapping(stage.get("data")), _mapping(data.get("data"))
    block = own if _has_source(own) else common | own
    return block, lambda key: ("stages", index, "data", key) if key in own else ("data", key)


def _loss(stage: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of a stage's loss, empty if there is none, and its block."""
    block = _mapping(stage.get("loss"))
    name = block.get("type")
    return name if isinstance(name, str) else "", block


def _labels(data: dict[str, Any], stages: _Stages) -> Iterator[Fault]:
    for index, stage in stages:
        block, where = _data_of(data, index, stage)
        loss, _ = _loss(stage)
        wanted = (LABELS_OF_CROSS_ENCODERS if _is_cross_encoder(stage) else LABELS_OF).get(loss)
        if block.get("pairs") is None:
            if wanted is not None and block.get("train") is not None:
                yield Fault(
                    where("train"), f"expected labelled rows for {loss}, found sentences. Give 'pairs' instead."
                )
            continue
        if loss in OF_SENTENCES and not _is_cross_encoder(stage):
            yield Fault(where("pairs"), f"expected sentences for {loss}, found pairs. Give 'train' instead.")
        found = block.get("labels", "scores")
        if wanted is not None and found != wanted:
            yield Fault(
                where("labels" if "labels" in block else "pairs"),
                f"expected 'labels: {wanted}' for {loss}, found {shown(found)}. Set it, or choose another loss.",
            )
        for key in ("augment", "teachers"):
            if stage.get(key):
                yield Fault(
                    ("stages", index, key), f"expected sentences in data.train beside '{key}', found pairs. Remove one."
                )


def _views(data: dict[str, Any], stages: _Stages) -> Iterator[Fault]:
    for index, stage in stages:
        block, _ = _data_of(data, index, stage)
        loss, _ = _loss(stage)
        if block.get("train") is None or _is_cross_encoder(stage):
            continue
        pair = _mapping(stage.get("augment")).get("mode") == "pair"
        if pair and loss in OF_ONE_COLUMN:
            yield Fault(
                ("stages", index, "augment", "mode"),
                f"expected 'replace' for {loss}, which makes both views itself, found 'pair'. Set it, or choose "
                f"{OF_TWO_COLUMNS}.",
            )
        if not pair and loss == OF_TWO_COLUMNS:
            yield Fault(
                ("stages", index, "loss", "type"),
                f"expected a loss that makes both views itself, found {OF_TWO_COLUMNS}. Choose SimCSELoss, or add "
                "'augment' with 'mode: pair'.",
            )


def _classes(data: dict[str, Any], stages: _Stages) -> Iterator[Fault]:
    for index, stage in stages:
        block, where = _data_of(data, index, stage)
        loss, arguments = _loss(stage)
        classes = classes_of(loss, arguments, _outputs(stage))
        if classes is None:
            continue
        bins = block.get("bins")
        if classes.key and classes.count < 2:
            yield Fault(
                ("stages", index, *classes.key),
                f"expected an output for each class of {loss}, 2 or more, found {classes.count}. Raise it.",
            )
        elif isinstance(bins, int) and bins > classes.count:
            way = f", or set {dotted(('stages', index, *classes.key))} to {bins}" if classes.key else ""
            yield Fault(
                where("bins"),
                f"expected at most {classes.count} classes for {loss}, found {bins}. Lower 'bins'{way}.",
            )


def _teachers(data: dict[str, Any], stages: _Stages) -> Iterator[Fault]:
    for index, stage in stages:
        block, _ = _data_of(data, index, stage)
        loss, arguments = _loss(stage)
        cross_encoder = _is_cross_encoder(stage)
        if block.get("train") is None:
            continue
        loc: Loc = ("stages", index, "teachers")
        if not stage.get("teachers"):
            if needs_teachers(loss, arguments) and not cross_encoder:
                yield Fault(
                    loc, f"expected the models that {loss} learns from, found none. Add 'teachers: [{{model: NAME}}]'."
                )
        elif loss in loss_names(cross_encoder) and (loss not in OF_TEACHERS or cross_encoder):
            way = "" if cross_encoder else f", or choose one of: {', '.join(OF_TEACHERS)}"
            yield Fault(
                loc, f"expected no teachers beside {loss}, which learns from none, found some. Remove them{way}."
            )


def _pair_scores(data: dict[str, Any], stages: _Stages) -> Iterator[Fault]:
    for index, stage in stages:
        if stage.get("pair_scores") is None:
            continue
        loss = _mapping(stage.get("loss")).get("type")
        if loss != "LSRNSLoss":
            yield Fault(
                ("stages", index, "pair_scores"),
                f"expected LSRNSLoss beside 'pair_scores', found {shown(loss)}. Choose it, or remove 'pair_scores'.",
            )
        if {**_mapping(data.get("args")), **_mapping(stage.get("args"))}.get("prompts"):
            yield Fault(
                ("stages", index, "pair_scores"),
                "expected sentences as 'pair_scores' names them, found 'prompts' in args before each. Remove one.",
            )
        if stage.get("augment"):
            yield Fault(
                ("stages", index, "augment"),
                "expected the sentences that 'pair_scores' names, found their round trips. Remove one.",
            )


def _losses(stages: _Stages) -> Iterator[Fault]:
    for index, stage in stages:
        if stage.get("loss") is None:
            continue  # An assembled stage, or a missing key, which validation tells.
        try:
            spec = LossSpec.model_validate(stage.get("loss"))
        except ValidationError:
            continue  # Told by the validation of the whole recipe.
        yield from (
            Fault(("stages", index, "loss", key), text) for key, text in loss_faults(spec, _is_cross_encoder(stage))
        )


def _arguments(data: dict[str, Any], stages: _Stages) -> Iterator[Fault]:
    blocks: list[tuple[Loc, Any]] = [(("args",), data.get("args"))]
    blocks += [(("stages", index, "args"), stage.get("args")) for index, stage in stages]
    for loc, args in blocks:
        yield from (Fault((*loc, key), text) for key, text in argument_faults(_mapping(args)))


def _evaluation(data: dict[str, Any], stages: _Stages) -> Iterator[Fault]:
    for index, stage in stages:
        own, common = _mapping(stage.get("args")), _mapping(data.get("args"))
        evaluate = data.get("evaluate") if stage.get("evaluate") is None else stage["evaluate"]
        if not isinstance(evaluate, (dict, type(None))) or _mapping(evaluate).get("dev") is not None:
            continue
        merged = {**common, **own}
        asks = {
            "eval_strategy": merged.get("eval_strategy") in ("steps", "epoch"),
            "eval_on_start": merged.get("eval_on_start") is True,
        }
        for key in (key for key, asked in asks.items() if asked):
            loc: Loc = ("stages", index, "args", key) if key in own else ("args", key)
            block = dotted(("stages", index, "evaluate"))
            yield Fault(
                loc,
                f"expected pairs to evaluate on in {block}.dev or the recipe's evaluate.dev, found none. "
                f"Add them, or remove '{key}'.",
            )


def _several_outputs(data: dict[str, Any], stages: _Stages) -> Iterator[Fault]:
    for index, stage in stages:
        outputs = _outputs(stage)
        if outputs is None or outputs < 2:
            continue
        loss, _ = _loss(stage)
        evaluate = _mapping(data.get("evaluate") if stage.get("evaluate") is None else stage["evaluate"])
        loc: Loc = ("stages", index, "model", "num_labels")
        if loss in loss_names(cross_encoder=True) and loss != OF_SEVERAL_OUTPUTS:
            yield Fault(loc, f"expected 1 output for {loss}, found {outputs}. Set 1, or choose {OF_SEVERAL_OUTPUTS}.")
        elif evaluate.get("dev") is not None or evaluate.get("test"):
            yield Fault(
                loc,
                f"expected 1 output, the score that 'evaluate' correlates, found {outputs}. Set 1, or evaluate the "
                f"stage on nothing by {dotted(('stages', index, 'evaluate'))}: {{}}.",
            )


def _push(data: dict[str, Any], stages: _Stages) -> Iterator[Fault]:
    names = [stage.get("name") for _, stage in stages]
    known = [name for name in names if isinstance(name, str)]
    for name in _mapping(_mapping(data.get("push")).get("repos")):
        if name not in known:
            yield Fault(("push", "repos", name), unknown("a stage of this recipe", name, known))
