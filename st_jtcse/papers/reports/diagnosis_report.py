"""The files of a diagnosis: diagnostics.json, pictures and index.html."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from st_jtcse.atomic import to_json, write_atomically
from st_jtcse.papers.diagnostics.diagnosis import Diagnosis, Plan
from st_jtcse.papers.diagnostics.embedding_space import CosineDensity
from st_jtcse.papers.diagnostics.encoders import GROUPS, AttentionSink, CLSEnergy, Modulus
from st_jtcse.papers.reports import diagnosis_pictures as pictures
from st_jtcse.reports.drawing import WIDE, picture, save
from st_jtcse.reports.page import Section, grouped, render_page
from st_jtcse.reports.table import Table, best_by_column, millions

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
        "alignment": _three_places(found.alignment),
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

    pairs, judges = plan.pairs, [one.cosines for one in diagnoses]
    told = "the models rank"
    if len(diagnoses) == 1:
        judges.append(np.asarray(pairs.scores))
        told = "the model and the gold scores rank"
    apart = np.ptp([rankdata(scores) for scores in judges], axis=0)
    places = np.argsort(-apart, kind="stable")[: plan.cases]
    cosines = zip(*(_cosines_told(one, pairs.scores, places) for one in diagnoses))
    rows = []
    for at, own in zip(places, cosines):
        rows.append([pairs.sentences1[at], pairs.sentences2[at], f"{pairs.scores[at]:g}", *own])
    columns = ["sentence1", "sentence2", "gold", *(one.name for one in diagnoses)]
    return Table(columns, rows, f"pairs that {told} most differently: gold score, cosine", names=2)


def _cosines_told(
    found: Diagnosis, scores: Sequence[float], places: NDArray[np.int64]
) -> list[str]:
    """Return a model's cosines of some pairs, each with its decision where scores are two."""
    told = [f"{found.cosines[at]:.3f}" for at in places]
    if len(set(scores)) != 2:
        return told
    threshold = best_threshold(found.cosines, np.asarray(scores) == max(scores))
    decisions = np.where(found.cosines[places] >= threshold, "yes", "no")
    return [f"{cosine} {decision}" for cosine, decision in zip(told, decisions)]


def best_threshold(cosines: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Return the cosine from which on pairs count as equivalent, so that most are judged rightly
    (CoSENT Table X, whose threshold is not in the paper).
    """
    order = np.argsort(-cosines, kind="stable")
    right = np.cumsum(np.where(positive[order], 1, -1))
    best = int(right.argmax())
    if right[best] <= 0:
        return math.inf
    return float(cosines[order[best]])


def write_report(
    folder: Path, diagnoses: Sequence[Diagnosis], plan: Plan, facts: Mapping[str, Any]
) -> None:
    """Fill a folder with diagnostics.json, every picture as SVG and PNG, and index.html; needs
    matplotlib.
    """
    sections = [Section("Summary", f"{_verdict(diagnoses)}\n\n{_about(plan)}", _summary(diagnoses))]
    for drawn_of in _PICTURES:
        one = drawn_of(diagnoses, plan)
        if one is not None:
            wide = save(one.draw(WIDE), folder, one.name, write_atomically)
            shown = picture(one.draw, one.alt, wide)
            sections.append(Section(one.heading, one.text, one.table, shown))
    if plan.cases:
        cases = cases_table(diagnoses, plan)
        sections.append(Section("Cases", f"{len(cases.rows)} {cases.title}.", cases))
    notes = [(note, found.name) for found in diagnoses for note in found.notes]
    if notes:
        sections.append(Section("Notes", "\n\n".join(grouped(notes))))
    title = f"Diagnostics of {', '.join(found.name for found in diagnoses)}"
    (folder / PAGE).write_text(render_page(title, sections), encoding="utf-8")
    text = to_json(_record(diagnoses, plan, facts))
    (folder / "diagnostics.json").write_text(text, encoding="utf-8")


def _about(plan: Plan) -> str:
    return (
        f"{len(plan.pairs.scores)} graded pairs. GMAC: 10^9 multiply-accumulate operations of a "
        "sentence of 64 tokens, of all products and of those with weights alone, as the paper "
        "counts. Sentences/s: measured once on the machine of this run. Spearman: "
        "of cosine and gold score. Eta: Spearman x 100 / GMAC (JTCSE Table VII)."
    )


def _record(diagnoses: Sequence[Diagnosis], plan: Plan, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
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


def _verdict(diagnoses: Sequence[Diagnosis]) -> str:
    first, best = diagnoses[0], max(diagnoses, key=lambda found: found.spearman)
    told = f"{best.name} ranks the pairs best: Spearman x 100 is {best.spearman:.2f}"
    if best is first:
        return f"{told}."
    return f"{told}, and {first.spearman:.2f} of {first.name}."


def _summary(diagnoses: Sequence[Diagnosis]) -> Table:
    columns = list(_figures(diagnoses[0]))
    rows = [list(_figures(found).values()) for found in diagnoses]
    highest = best_by_column(rows, map(columns.index, _HIGHEST))
    lowest = best_by_column(rows, map(columns.index, _LOWEST), lowest=True)
    return Table(columns, rows, best=highest | lowest)


class _Drawn(NamedTuple):
    """A picture and what stands beside it."""

    name: str
    heading: str
    text: str
    alt: str
    draw: Callable[[float], Figure]  # in a width
    table: Table | None = None


def _space(diagnoses: Sequence[Diagnosis], plan: Plan) -> _Drawn | None:
    spaces = {
        one.name: (one.alignment, one.uniformity) for one in diagnoses if one.alignment is not None
    }
    if not spaces:
        return None
    told = _listed(spaces, "{:.3f} and {:.3f}")
    return _Drawn(
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


def _cost(diagnoses: Sequence[Diagnosis], plan: Plan) -> _Drawn:
    costs = {one.name: (one.spearman, one.gmac) for one in diagnoses}
    over = "cost of a sentence of 64 tokens (GMAC)"
    return _Drawn(
        "score_and_cost",
        "Score and cost",
        "Spearman x 100 over the operations of one sentence.",
        f"One point per model: {_listed(costs, '{:.2f} at {:.2f} GMAC')}.",
        partial(pictures.draw_points, costs, over=over, shown="Spearman x 100", from_zero=True),
    )


def _cosines(diagnoses: Sequence[Diagnosis], plan: Plan) -> _Drawn:
    cosines = {one.name: one.cosines for one in diagnoses}
    return _Drawn(
        "cosines",
        "Cosines of all pairs",
        "Density of the cosines of all pairs, whatever their scores (CoSENT Fig. 5). The table has "
        "their standard deviation: the larger, the more a model spreads them.",
        "One curve per model: the density of its cosines; the deviations are in the table.",
        partial(pictures.draw_cosines, cosines),
        _table("model", ["deviation"], cosines, lambda own: [f"{own.std():.3f}"]),
    )


def _densities(diagnoses: Sequence[Diagnosis], plan: Plan) -> _Drawn:
    densities = {one.name: one.density for one in diagnoses}
    fifths = [f"{low:g} to {high:g}" for low, high in pairwise(diagnoses[0].density.edges)]

    def means(density: CosineDensity) -> list[str]:
        return list(map(_three_places, density.means))

    return _Drawn(
        "cosine_density",
        "Cosines by gold score",
        "The pairs are divided by fifths of the range of gold scores; a score on an edge belongs "
        "to the lower fifth. The table has the mean cosine of each fifth. The better a model, the "
        "further right each ridge lies of the one below it (JTCSE Fig. 5).",
        "Density of the cosines for each fifth of the gold scores, one panel per model; the means "
        "are in the table.",
        partial(pictures.draw_cosine_density, densities),
        _table("model", fifths, densities, means),
    )


def _energy(diagnoses: Sequence[Diagnosis], plan: Plan) -> _Drawn | None:
    energies = _by_encoder({one.name: one.energy for one in diagnoses})
    if not energies:
        return None
    depth = max(len(energy.mean) for energy in energies.values())
    layers = [f"layer {layer}" for layer in range(1, depth + 1)]

    def means(energy: CLSEnergy) -> list[str]:
        told = [f"{mean:.3f}" for mean in energy.mean]
        return told + [""] * (depth - len(told))

    return _Drawn(
        "cls_energy",
        "E_CLS by layer",
        "E_CLS (JTCSE Eq. 6): norm of the CLS row of a layer's attention context (all heads, "
        "before the output projection) over the norm of all other rows together; mean over "
        f"{len(plan.sample()[0])} sentences. It falls with the length of a sentence, so it "
        "compares models on the same text only. Lines may lie on each other: the differences from "
        "the first encoder, of those with as many layers, have a panel of their own.",
        "One line per encoder: mean E_CLS over layers, and its difference from the first; the "
        "values are in the table.",
        partial(pictures.draw_cls_energy, energies),
        _table("encoder", layers, energies, means),
    )


def _energy_and_score(diagnoses: Sequence[Diagnosis], plan: Plan) -> _Drawn | None:
    points = {one.name: (one.spearman, one.mean_energy) for one in diagnoses if one.energy}
    if not points:
        return None
    over = "mean E_CLS (ratio of norms)"
    return _Drawn(
        "score_and_cls_energy",
        "Score and E_CLS",
        "Spearman x 100 over E_CLS, here the mean over the layers of all of a model's encoders "
        "(JTCSE Fig. 10).",
        f"One point per model: {_listed(points, '{:.2f} at {:.3f}')}.",
        partial(pictures.draw_points, points, over=over, shown="Spearman x 100"),
    )


def _attention(diagnoses: Sequence[Diagnosis], plan: Plan) -> _Drawn | None:
    sinks = _by_encoder({one.name: one.sink for one in diagnoses})
    if not sinks:
        return None

    def shares(sink: AttentionSink) -> list[str]:
        return [f"{100 * share:.0f} %" for share in sink.mass.mean(axis=0)]

    return _Drawn(
        "attention_sink",
        "Where attention goes",
        f"The sentence: {plan.sentence}\n\nShare of each layer's attention that CLS, SEP, "
        "punctuation and words receive, averaged over heads and asking tokens. The table has the "
        "mean over layers.",
        "One heat map per encoder: layers down, groups of tokens across, the share in per cent in "
        "each cell.",
        partial(pictures.draw_attention_sink, sinks),
        _table("encoder", GROUPS, sinks, shares),
    )


def _attention_maps(diagnoses: Sequence[Diagnosis], plan: Plan) -> _Drawn | None:
    sinks = _by_encoder({one.name: one.sink for one in diagnoses})
    if not sinks:
        return None
    return _Drawn(
        "attention_maps",
        "Attention, token by token",
        f"The sentence: {plan.sentence}\n\nOf every layer the mean over its heads: down the token "
        "that asks, across the token that it attends to (JTCSE Fig. 9).",
        "A row of heat maps per encoder, one for each layer: tokens down and across.",
        partial(pictures.draw_attention_maps, sinks),
    )


def _moduli(diagnoses: Sequence[Diagnosis], plan: Plan) -> _Drawn | None:
    moduli = _by_encoder({one.name: one.modulus for one in diagnoses})
    if not moduli:
        return None

    def norms(found: Modulus) -> list[str]:
        return [_mean_and_deviation(found.hidden), _mean_and_deviation(found.pooler)]

    return _Drawn(
        "modulus",
        "Moduli",
        "Euclidean norms of the last layer's CLS state and of the pooler output, over "
        f"{len(plan.sample()[0])} sentences. The table has mean and standard deviation.",
        "Histograms of both norms, one line per encoder; means and deviations are in the table.",
        partial(pictures.draw_modulus, moduli),
        _table("encoder", ["last CLS state", "pooler output"], moduli, norms),
    )


def _map(diagnoses: Sequence[Diagnosis], plan: Plan) -> _Drawn | None:
    maps = {one.name: one.sentence_map for one in diagnoses if one.sentence_map is not None}
    if not maps:
        return None
    sentences, joined = plan.sample()
    how = {
        "pca": "Principal components of the unit vectors; the axes of two models are not the same.",
        "tsne": "t-SNE of the unit vectors: neighbours are kept together, distances and axes mean "
        "nothing.",
    }[plan.map_method]
    return _Drawn(
        "sentence_map",
        "Map of the sentences",
        f"{len(sentences)} sentences. {how} Squares joined by a line are the two sentences of a "
        f"positive pair ({len(joined)} lines).",
        "One panel per model: one dot per sentence, squares joined by a line for the two of a "
        "positive pair.",
        partial(pictures.draw_sentence_map, maps, joined),
    )


# In the order of the page; None where no model has what a picture would show.
_PICTURES: tuple[Callable[[Sequence[Diagnosis], Plan], _Drawn | None], ...] = (
    _space,
    _cost,
    _cosines,
    _densities,
    _energy,
    _energy_and_score,
    _attention,
    _attention_maps,
    _moduli,
    _map,
)


def _table(
    what: str,
    columns: Sequence[str],
    found: Mapping[str, Value],
    cells: Callable[[Value], Sequence[str]],
) -> Table:
    """Return a row for each model or encoder, its cells made of what was found of it."""
    return Table([what, *columns], [[name, *cells(own)] for name, own in found.items()])


def _by_encoder(found: Mapping[str, Mapping[str, Value]]) -> dict[str, Value]:
    """Return what was found of each encoder, by the names of model and encoder."""
    named = {}
    for name, own in found.items():
        for label, value in own.items():
            named[", ".join(filter(None, (name, label)))] = value
    return named


def _listed(points: Mapping[str, Sequence[float]], form: str) -> str:
    return "; ".join(f"{name} {form.format(*point)}" for name, point in points.items())


def _three_places(value: float | None) -> str:
    """Write a figure, or what stands for a missing one."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.3f}"


def _mean_and_deviation(norms: NDArray[np.float64] | None) -> str:
    if norms is None:
        return "-"
    return f"{norms.mean():.2f} ± {norms.std():.2f}"
