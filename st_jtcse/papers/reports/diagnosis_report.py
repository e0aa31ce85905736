"""The files of a diagnosis: diagnostics.json, pictures and index.html."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from st_jtcse.atomic import write_atomically
from st_jtcse.papers.diagnostics.diagnosis import Diagnosis, Plan
from st_jtcse.papers.diagnostics.encoders import GROUPS
from st_jtcse.papers.reports import diagnosis_pictures as pictures
from st_jtcse.reports.drawing import WIDE, picture, save
from st_jtcse.reports.page import Section, grouped, render_page
from st_jtcse.reports.table import Table, best_by_column, best_of, millions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "index.html"
# Of the figures: where more is better, and where less.
_HIGHEST, _LOWEST = ("Spearman x 100", "sentences/s", "eta"), ("GMAC", "alignment", "uniformity")
Value = TypeVar("Value")


def _figures(found: Diagnosis) -> dict[str, str]:
    return {
        "model": found.name,
        "Spearman x 100": f"{found.spearman:.2f}",
        "alignment": "-" if found.alignment is None else f"{found.alignment:.3f}",
        "uniformity": f"{found.uniformity:.3f}",
        "dimension": str(found.dimension),
        "parameters": millions(found.parameters),
        "GMAC": f"{found.gmac:.2f}",
        "GMAC, linear layers": f"{found.linear_gmac:.2f}",
        "sentences/s": f"{found.sentences_per_second:.0f}",
        "eta": f"{found.eta:.1f}",
    }


def summary_by_model(diagnoses: Sequence[Diagnosis], title: str) -> Table:
    """Return the figures of some models with a column a model: so three models fit on eighty
    columns.
    """
    columns, *rows = zip(_figures(diagnoses[0]), *(_figures(found).values() for found in diagnoses))
    return Table(columns, rows, title)


def cases_table(diagnoses: Sequence[Diagnosis], plan: Plan) -> Table:
    """Return the pairs that the models rank most differently; of a single model, it and the gold
    scores. Where these are yes or no, each model's decision stands behind its cosine.
    """
    from scipy.stats import rankdata

    pairs = plan.pairs
    judges = (
        [one.cosines for one in diagnoses]
        if len(diagnoses) > 1
        else [diagnoses[0].cosines, pairs.scores]
    )
    apart = np.ptp([rankdata(scores) for scores in judges], axis=0)
    is_binary = len(set(pairs.scores)) == 2
    thresholds = {
        one.name: best_threshold(one.cosines, np.asarray(pairs.scores) == max(pairs.scores))
        for one in diagnoses
    }

    def told_of(one: Diagnosis, at: int) -> str:
        cosine = f"{one.cosines[at]:.3f}"
        if not is_binary:
            return cosine
        return f"{cosine} {'yes' if one.cosines[at] >= thresholds[one.name] else 'no'}"

    rows = []
    for at in np.argsort(-apart, kind="stable")[: plan.cases]:
        cosines = [told_of(one, at) for one in diagnoses]
        rows.append([pairs.sentences1[at], pairs.sentences2[at], f"{pairs.scores[at]:g}", *cosines])
    told = "the models rank" if len(diagnoses) > 1 else "the model and the gold scores rank"
    columns = ["sentence1", "sentence2", "gold", *(one.name for one in diagnoses)]
    return Table(columns, rows, f"pairs that {told} most differently: gold score, cosine", names=2)


def best_threshold(cosines: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Return the cosine from which on pairs count as equivalent, so that most are judged rightly
    (CoSENT Table X, whose threshold is not in the paper).
    """
    order = np.argsort(-cosines, kind="stable")
    right = np.cumsum(np.where(positive[order], 1, -1))
    best = int(right.argmax())
    return float(cosines[order[best]]) if right[best] > 0 else float("inf")


def write_report(
    folder: Path, diagnoses: Sequence[Diagnosis], plan: Plan, facts: Mapping[str, Any]
) -> None:
    """Fill a folder with diagnostics.json, every picture as SVG and PNG, and index.html; needs
    matplotlib.
    """
    about = (
        f"{len(plan.pairs.scores)} graded pairs. GMAC: 10^9 multiply-accumulate operations of a "
        "sentence of 64 tokens, of all products and of those with weights alone, as the paper "
        "counts. Sentences/s: measured once on the machine of this run. Spearman: "
        "of cosine and gold score. Eta: Spearman x 100 / GMAC (JTCSE Table VII)."
    )
    sections = [Section("Summary", f"{_verdict(diagnoses)}\n\n{about}", _summary(diagnoses))]
    for one in (
        *_of_models(diagnoses, plan),
        *_of_encoders(diagnoses, plan),
        *_map(diagnoses, plan),
    ):
        wide = save(one.draw(WIDE), folder, one.name, write_atomically)
        sections.append(Section(one.heading, one.text, one.table, picture(one.draw, one.alt, wide)))
    if plan.cases:
        cases = cases_table(diagnoses, plan)
        sections.append(Section("Cases", f"{len(cases.rows)} {cases.title}.", cases))
    notes = [(note, found.name) for found in diagnoses for note in found.notes]
    if notes:
        sections.append(Section("Notes", "\n\n".join(grouped(notes))))
    title = f"Diagnostics of {', '.join(found.name for found in diagnoses)}"
    (folder / PAGE).write_text(render_page(title, sections), encoding="utf-8")
    record = {
        "pairs": {
            "count": len(plan.pairs.scores),
            "sha256": plan.pairs.sha256,
            "score_range": list(plan.score_range),
        },
        "sentence": plan.sentence,
        "map": plan.map_method,
        "sample_size": len(plan.sampled),
        "seed": plan.seed,
        **facts,
        "models": [found.as_record() for found in diagnoses],
    }
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / "diagnostics.json").write_text(text, encoding="utf-8")


def _verdict(diagnoses: Sequence[Diagnosis]) -> str:
    first, best = diagnoses[0], max(diagnoses, key=lambda found: found.spearman)
    told = f"{best.name} ranks the pairs best: Spearman x 100 is {best.spearman:.2f}"
    return f"{told}, and {first.spearman:.2f} of {first.name}." if best is not first else f"{told}."


def _summary(diagnoses: Sequence[Diagnosis]) -> Table:
    columns = list(_figures(diagnoses[0]))
    rows = [list(_figures(found).values()) for found in diagnoses]
    best = best_by_column(rows, map(columns.index, _HIGHEST))
    for name in _LOWEST:
        best |= best_of(rows, [(at, columns.index(name)) for at in range(len(rows))], lowest=True)
    return Table(columns, rows, best=best)


class _Drawn(NamedTuple):
    name: str
    heading: str
    text: str
    alt: str
    draw: Callable[[float], Figure]  # in a width
    table: Table | None = None


def _of_models(diagnoses: Sequence[Diagnosis], plan: Plan) -> Iterator[_Drawn]:
    spaces = {
        one.name: (one.alignment, one.uniformity) for one in diagnoses if one.alignment is not None
    }
    if spaces:
        told = "; ".join(
            f"{name} {first:.3f} and {second:.3f}" for name, (first, second) in spaces.items()
        )
        yield _Drawn(
            "alignment_uniformity",
            "Alignment and uniformity",
            "Alignment (JTCSE Eq. 16): mean squared distance between the unit vectors of positive "
            f"pairs, here the {int(plan.positive.sum())} pairs scored above {plan.threshold:g}. "
            "Uniformity (Eq. 17): logarithm of the mean of exp(-2 squared distance) over all pairs "
            "of different sentences. Lower is better, but one is easily had at the cost of the "
            "other: a model is better than another where both are lower.",
            f"One point per model; alignment and uniformity of each: {told}.",
            partial(
                pictures.draw_points,
                spaces,
                over="uniformity (lower: more evenly spread)",
                shown="alignment (lower: closer)",
            ),
        )
    costs = {one.name: (one.spearman, one.gmac) for one in diagnoses}
    cost = "cost of a sentence of 64 tokens (GMAC)"
    told = "; ".join(
        f"{name} {score:.2f} at {gmac:.2f} GMAC" for name, (score, gmac) in costs.items()
    )
    yield _Drawn(
        "score_and_cost",
        "Score and cost",
        "Spearman x 100 over the operations of one sentence.",
        f"One point per model: {told}.",
        partial(pictures.draw_points, costs, over=cost, shown="Spearman x 100", from_zero=True),
    )
    spreads = {one.name: f"{one.cosines.std():.3f}" for one in diagnoses}
    yield _Drawn(
        "cosines",
        "Cosines of all pairs",
        "Density of the cosines of all pairs, whatever their scores (CoSENT Fig. 5). The table has "
        "their standard deviation: the larger, the more a model spreads them.",
        "One curve per model: the density of its cosines; the deviations are in the table.",
        partial(pictures.draw_cosines, {one.name: one.cosines for one in diagnoses}),
        _table("model", ["deviation"], {name: [told] for name, told in spreads.items()}),
    )
    fifths = [f"{low:g} to {high:g}" for low, high in pairwise(diagnoses[0].density.edges)]
    means = {
        one.name: ["-" if math.isnan(mean) else f"{mean:.3f}" for mean in one.density.means]
        for one in diagnoses
    }
    yield _Drawn(
        "cosine_density",
        "Cosines by gold score",
        "The pairs are divided by fifths of the range of gold scores; a score on an edge belongs "
        "to the lower fifth. The table has the mean cosine of each fifth. The better a model, the "
        "further right each ridge lies of the one below it (JTCSE Fig. 5).",
        "Density of the cosines for each fifth of the gold scores, one panel per model; the means "
        "are in the table.",
        partial(pictures.draw_cosine_density, {one.name: one.density for one in diagnoses}),
        _table("model", fifths, means),
    )


def _of_encoders(diagnoses: Sequence[Diagnosis], plan: Plan) -> Iterator[_Drawn]:
    energies = _by_encoder({one.name: one.energy for one in diagnoses})
    if not energies:
        return
    count = len(plan.sample()[0])
    depth = max(len(energy.mean) for energy in energies.values())
    means = {
        name: [*(f"{mean:.3f}" for mean in one.mean), *[""] * (depth - len(one.mean))]
        for name, one in energies.items()
    }
    yield _Drawn(
        "cls_energy",
        "E_CLS by layer",
        "E_CLS (JTCSE Eq. 6): norm of the CLS row of a layer's attention context (all heads, "
        "before the output projection) over the norm of all other rows together; mean over "
        f"{count} sentences. It falls with the length of a sentence, so it compares models on the "
        "same text only. Lines may lie on each other: the differences from the first encoder, of "
        "those with as many layers, have a panel of their own.",
        "One line per encoder: mean E_CLS over layers, and its difference from the first; the "
        "values are in the table.",
        partial(pictures.draw_cls_energy, energies),
        _table("encoder", [f"layer {layer}" for layer in range(1, depth + 1)], means),
    )
    points = {one.name: (one.spearman, one.mean_energy) for one in diagnoses if one.energy}
    told = "; ".join(
        f"{name} {score:.2f} at {energy:.3f}" for name, (score, energy) in points.items()
    )
    yield _Drawn(
        "score_and_cls_energy",
        "Score and E_CLS",
        "Spearman x 100 over E_CLS, here the mean over the layers of all of a model's encoders "
        "(JTCSE Fig. 10).",
        f"One point per model: {told}.",
        partial(
            pictures.draw_points, points, over="mean E_CLS (ratio of norms)", shown="Spearman x 100"
        ),
    )
    sinks = _by_encoder({one.name: one.sink for one in diagnoses})
    shares = {
        name: [f"{100 * share:.0f} %" for share in sink.mass.mean(axis=0)]
        for name, sink in sinks.items()
    }
    yield _Drawn(
        "attention_sink",
        "Where attention goes",
        f"The sentence: {plan.sentence}\n\nShare of each layer's attention that CLS, SEP, "
        "punctuation and words receive, averaged over heads and asking tokens. The table has the "
        "mean over layers.",
        "One heat map per encoder: layers down, groups of tokens across, the share in per cent in "
        "each cell.",
        partial(pictures.draw_attention_sink, sinks),
        _table("encoder", GROUPS, shares),
    )
    yield _Drawn(
        "attention_maps",
        "Attention, token by token",
        f"The sentence: {plan.sentence}\n\nOf every layer the mean over its heads: down the token "
        "that asks, across the token that it attends to (JTCSE Fig. 9).",
        "A row of heat maps per encoder, one for each layer: tokens down and across.",
        partial(pictures.draw_attention_maps, sinks),
    )
    moduli = _by_encoder({one.name: one.modulus for one in diagnoses})
    norms = {
        name: [
            "-" if x is None else f"{x.mean():.2f} ± {x.std():.2f}"
            for x in (one.hidden, one.pooler)
        ]
        for name, one in moduli.items()
    }
    yield _Drawn(
        "modulus",
        "Moduli",
        f"Euclidean norms of the last layer's CLS state and of the pooler output, over {count} "
        "sentences. The table has mean and standard deviation.",
        "Histograms of both norms, one line per encoder; means and deviations are in the table.",
        partial(pictures.draw_modulus, moduli),
        _table("encoder", ["last CLS state", "pooler output"], norms),
    )


def _map(diagnoses: Sequence[Diagnosis], plan: Plan) -> Iterator[_Drawn]:
    maps = {one.name: one.sentence_map for one in diagnoses if one.sentence_map is not None}
    if not maps:
        return
    sentences, joined = plan.sample()
    how = {
        "pca": "Principal components of the unit vectors; the axes of two models are not the same.",
        "tsne": "t-SNE of the unit vectors: neighbours are kept together, distances and axes mean "
        "nothing.",
    }[plan.map_method]
    yield _Drawn(
        "sentence_map",
        "Map of the sentences",
        f"{len(sentences)} sentences. {how} Squares joined by a line are the two sentences of a "
        f"positive pair ({len(joined)} lines).",
        "One panel per model: one dot per sentence, squares joined by a line for the two of a "
        "positive pair.",
        partial(pictures.draw_sentence_map, maps, joined),
    )


def _table(what: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> Table:
    return Table([what, *columns], [[name, *cells] for name, cells in rows.items()])


def _by_encoder(found: Mapping[str, Mapping[str, Value]]) -> dict[str, Value]:
    return {
        f"{name}, {label}" if label else name: value
        for name, own in found.items()
        for label, value in own.items()
    }
