"""A run on vectors alone, of a model that cannot be trained: a map is fitted, chosen and
described.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from st_jtcse.abilities.contest import Entry, winner
from st_jtcse.abilities.mapped import MapsSpec, step_of
from st_jtcse.atomic import check_new, new_folder, to_json, write_atomically
from st_jtcse.cli import console
from st_jtcse.data.fitted_maps import apply_maps, check_count, fit_maps
from st_jtcse.data.vector_files import SUFFIXES, VectorFile, load_vectors
from st_jtcse.errors import UserError
from st_jtcse.evaluation.measured_sets import OwnSet
from st_jtcse.evaluation.own_sets import labelled_vectors
from st_jtcse.evaluation.unlabelled import agreed_set
from st_jtcse.evaluation.verdict import Verdict, compare
from st_jtcse.modules.closed_forms import AffineMap
from st_jtcse.recipe.blocks import SourceSpec
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.training.limits import Limits

MAP, CARD, RESULTS = "map.safetensors", "README.md", "results.json"
# The share of vectors that are held out to choose by, and how many at most.
_SHARE, _MOST = 0.1, 1000
_CARD = """\
# A map of embeddings

`{map}` was fitted on {rows} vectors of {size} components by st-jtcse: {chosen}. To apply it:

```python
import numpy as np
from safetensors.numpy import load_file

found = load_file("{map}")
mapped = vectors / np.linalg.norm(vectors, axis=1, keepdims=True) @ found["matrix"] + found["bias"]
mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
```

`vectors` are rows of the model that the map was fitted on. Map queries and documents alike: mapped
vectors compare with mapped ones only. Text of another kind than yours moves too, and may lose by
it.
"""


def run(loaded: LoadedRecipe, *, dry_run: bool = False) -> None:
    """Fit the recipe's first `maps` on its vectors, and leave a map, results and how to apply it.

    Raises UserError where the vectors cannot be used, or the folder holds something.
    """
    recipe = loaded.recipe
    assert recipe.data is not None and recipe.data.vectors is not None
    folder, source = Path(recipe.output_dir), recipe.data.vectors
    own = _maps_of(loaded)
    found = load_vectors(_place(source))
    check_count(len(found.vectors))
    tests = _tests(loaded, found)
    check_new(folder)
    rows, size = found.vectors.shape
    if dry_run:
        console.say(f"{rows} vectors of {size} components, {len(own.ways)} ways to map them.")
        console.say("Everything fits together. To start the run, repeat it without --dry-run.")
        return
    entries, ways = _contest(found, own, recipe.seed)
    # The start wins a tie.
    chosen = winner(entries, Limits())
    best = ways[chosen]
    told = _verdicts(tests, best)
    with new_folder(folder) as place:
        best.save(place / MAP)
        card = _CARD.format(map=MAP, rows=rows, size=size, chosen=entries[chosen].name)
        lines = "".join(f"\n- {verdict.sentence}" for verdict in told)
        write_atomically(place / CARD, card + (f"\n## Verdicts\n{lines}\n" if told else ""))
        record = {
            "vectors_sha256": found.sha256,
            "ways": [{"name": entry.name, "dev": round(entry.dev, 4)} for entry in entries],
            "chosen": entries[chosen].name,
            "verdicts": [verdict.as_record().plain() for verdict in told],
        }
        write_atomically(place / RESULTS, to_json(record))
    for entry in entries:
        console.say(f"{entry.name}: {entry.dev:.2f} of held-out neighbours agreed on")
    for verdict in told:
        console.say(verdict.sentence)
    console.say(f"Best: {entries[chosen].name}. {folder / MAP}, and how to apply it: {CARD}")


def _maps_of(loaded: LoadedRecipe) -> MapsSpec:
    for stage in loaded.stages:
        own: MapsSpec | None = getattr(stage, "maps", None)
        if own is None:
            continue
        if any(step.towards is not None for _, _, step in own.steps):
            raise UserError(
                f"Stage {stage.name!r}: 'towards' needs text for its teachers, and data.vectors "
                "has none; leave it out."
            )
        return own
    raise UserError(
        "data.vectors: the recipe has no stage with 'maps' to fit on them; run adapt, or add one."
    )


def _place(source: SourceSpec) -> Path:
    if source.file is None:
        raise UserError("data.vectors: expected a file, found a data set; save its vectors first.")
    return Path(source.file)


def _tests(loaded: LoadedRecipe, found: VectorFile) -> dict[str, tuple[OwnSet, VectorFile]]:
    """Return the test sets that are labelled vectors; those of text need a model."""
    evaluate = loaded.recipe.evaluate
    tests: dict[str, tuple[OwnSet, VectorFile]] = {}
    for name, source in (evaluate.test if evaluate else {}).items():
        if source.file is None or Path(source.file).suffix not in SUFFIXES:
            continue
        own = load_vectors(Path(source.file))
        if own.labels is None:
            raise UserError(
                f"{source.file}: expected the column 'label' beside the vectors, found none; add "
                "it to a Parquet file."
            )
        if own.vectors.shape[1] != found.vectors.shape[1]:
            raise UserError(
                f"{source.file}: expected vectors of {found.vectors.shape[1]} components as in "
                f"data.vectors, found {own.vectors.shape[1]}; give vectors of one model."
            )
        tests[name] = (labelled_vectors(name, own.labels, own.sha256, source.file), own)
    return tests


def _contest(found: VectorFile, own: MapsSpec, seed: int) -> tuple[list[Entry], list[AffineMap]]:
    """Return the start and the ways with their scores, and their maps, fitted on what is not held
    out.
    """
    vectors = found.vectors
    order = np.random.default_rng(seed).permutation(len(vectors))
    count = min(_MOST, int(_SHARE * len(vectors)))
    held, text = vectors[np.sort(order[:count])], vectors[np.sort(order[count:])]
    size = vectors.shape[1]
    maps = [AffineMap(np.eye(size), np.zeros(size))]
    for name, way in zip(own.names, own.ways):
        fitted = fit_maps(text, [step_of(step) for step in way])
        if len(fitted) > 1:
            raise UserError(
                f"The way {name!r} is several maps, and a file holds one; put what subtracts the "
                "mean first."
            )
        maps += fitted
    mapped = [apply_maps([each], held) for each in maps]
    among = [apply_maps([each], text[:: -(-len(text) // 20_000)]) for each in maps]
    dev = agreed_set([""] * len(held), found.sha256, among[0], mapped, among)
    return [
        Entry(name, 100 * dev.score(dev.measure(each)))
        for name, each in zip(["as it is", *own.names], mapped)
    ], maps


def _verdicts(tests: dict[str, tuple[OwnSet, VectorFile]], best: AffineMap) -> list[Verdict]:
    measured = {
        name: (own, own.measure(file.vectors), own.measure(apply_maps([best], file.vectors)))
        for name, (own, file) in tests.items()
    }
    return compare(measured) if measured else []
