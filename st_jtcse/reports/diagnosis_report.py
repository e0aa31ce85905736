"""The files of a diagnosis: diagnostics.json, pictures and index.html."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from st_jtcse.diagnostics import pictures
from st_jtcse.diagnostics.attention_sink import GROUPS
from st_jtcse.diagnostics.drawing import to_bytes
from st_jtcse.reports.diagnosis import Diagnosis, Plan
from st_jtcse.reports.page import Picture, Section, Table, render_page

RECORD = "diagnostics.json"
PAGE = "index.html"
SUMMARY = (
    "model",
    "dimension",
    "parameters",
    "GMAC",
    "sentences/s",
    "Spearman x 100",
    "eta",
    "alignment",
    "uniformity",
)
# Two panels beside each other cannot be read at the width of a phone.
_TWO_PANELS = 560
Value = TypeVar("Value")


def summary_row(found: Diagnosis) -> tuple[str, ...]:
    """Return a model's line in the summary, cell by cell as they are shown.

    Args:
        found: The model's diagnosis.
    """
    return (
        found.name,
        str(found.dimension),
        f"{found.parameters / 1e6:.1f}M",
        f"{found.gmac:.2f}",
        f"{found.sentences_per_second:.0f}",
        f"{found.spearman:.2f}",
        f"{found.eta:.1f}",
        "-" if found.alignment is None else f"{found.alignment:.3f}",
        f"{found.uniformity:.3f}",
    )


def write_report(folder: Path, diagnoses: Sequence[Diagnosis], plan: Plan, facts: Mapping[str, Any]) -> None:
    """Fill a folder with diagnostics.json, every picture as SVG and PNG, and index.html.

    Args:
        folder: An empty folder.
        diagnoses: One a model.
        plan: What was asked.
        facts: What else goes into diagnostics.json, such as versions.

    Raises:
        UserError: matplotlib is not installed.
    """
    drawn = [one for one in _drawings(diagnoses, plan) if one is not None]
    sections = [_summary(diagnoses, plan)]
    for one in drawn:
        figure = one.draw()
        content = {kind: to_bytes(figure, kind) for kind in ("svg", "png")}
        for kind, data in content.items():
            (folder / f"{one.name}.{kind}").write_bytes(data)
        sections.append(Section(one.heading, one.text, one.table, Picture(content["svg"], one.alt, one.least_width)))
    notes = [(found.name, note) for found in diagnoses for note in found.notes]
    if notes:
        text = "\n\n".join(f"{name}. {note}" for name, note in notes)
        sections.append(Section("Notes", text))
    title = f"Diagnostics of {', '.join(found.name for found in diagnoses)}"
    (folder / PAGE).write_text(render_page(title, sections), encoding="utf-8")
    record = {
        "pairs": {"count": len(plan.pairs.scores), "sha256": plan.pairs.sha256, "score_range": list(plan.score_range)},
        "sentence": plan.sentence,
        "map": plan.map_method,
        "sample_size": len(plan.sampled),
        "seed": plan.seed,
        **facts,
        "models": [as_record(found) for found in diagnoses],
    }
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / RECORD).write_text(text, encoding="utf-8")


def as_record(found: Diagnosis) -> dict[str, Any]:
    """Return a model's diagnosis as JSON has it; what does not exist is null.

    Args:
        found: The model's diagnosis.
    """
    return {
        "name": found.name,
        "weights_sha256": found.weights_sha256,
        "dimension": found.dimension,
        "parameters": found.parameters,
        "gmac": round(found.gmac, 4),
        "sentences_per_second": round(found.sentences_per_second, 1),
        "spearman": round(found.spearman, 4),
        "eta": round(found.eta, 4),
        "alignment": _numbers(found.alignment),
        "uniformity": _numbers(found.uniformity),
        "cosines_by_score_fifth": {
            "edges": _numbers(found.density.edges),
            "counts": found.density.counts.tolist(),
            "means": _numbers(found.density.means),
            "deviations": _numbers(found.density.deviations),
        },
        "map_points": None if found.sentence_map is None else _numbers(found.sentence_map.points),
        "encoders": [
            {
                "label": label,
                "cls_energy": {"mean": _numbers(energy.mean), "deviation": _numbers(energy.deviation)},
                "attention": {
                    "tokens": found.sink[label].tokens,
                    "groups": found.sink[label].groups,
                    "mass": [dict(zip(GROUPS, _numbers(layer))) for layer in found.sink[label].mass],
                },
                "modulus": {
                    name: None
                    if norms is None
                    else {"mean": _numbers(norms.mean()), "deviation": _numbers(norms.std())}
                    for name, norms in (
                        ("hidden", found.modulus[label].hidden),
                        ("pooler", found.modulus[label].pooler),
                    )
                },
            }
            for label, energy in found.energy.items()
        ],
        "notes": found.notes,
    }


def _numbers(value: Any) -> Any:
    """Round to six places, and turn NaN, which JSON lacks, into null."""
    if value is None:
        return None
    if np.ndim(value):
        return [_numbers(item) for item in value]
    return round(float(value), 6) if math.isfinite(value) else None


@dataclass(frozen=True)
class _Drawing:
    name: str
    heading: str
    text: str
    alt: str
    draw: Callable[[], Any]
    table: Table | None = None
    least_width: int = 0


def _summary(diagnoses: Sequence[Diagnosis], plan: Plan) -> Section:
    text = (
        f"{len(plan.pairs.scores)} graded pairs. GMAC: 10^9 multiply-accumulate operations of a sentence of 32 tokens. "
        "Sentences/s: measured once on the machine of this run. Spearman: of cosine and gold score. "
        "Eta: Spearman x 100 / GMAC (JTCSE Table VII)."
    )
    return Section("Summary", text, Table(SUMMARY, [summary_row(found) for found in diagnoses]))


def _drawings(diagnoses: Sequence[Diagnosis], plan: Plan) -> list[_Drawing | None]:
    return [
        _alignment_uniformity(diagnoses, plan),
        _score_and_cost(diagnoses),
        _cosine_density(diagnoses),
        _cls_energy(diagnoses, plan),
        _attention_sink(diagnoses, plan),
        _modulus(diagnoses, plan),
        _sentence_map(diagnoses, plan),
    ]


def _alignment_uniformity(diagnoses: Sequence[Diagnosis], plan: Plan) -> _Drawing | None:
    values = {one.name: (one.alignment, one.uniformity) for one in diagnoses if one.alignment is not None}
    if not values:
        return None
    low, high = plan.score_range
    told = "; ".join(f"{name} {first:.3f} and {second:.3f}" for name, (first, second) in values.items())
    return _Drawing(
        "alignment_uniformity",
        "Alignment and uniformity",
        "Alignment (JTCSE Eq. 16): mean squared distance between the unit vectors of positive pairs, here the "
        f"{int(plan.positive.sum())} pairs scored above {high - (high - low) / 5:g}. Uniformity (Eq. 17): logarithm of "
        "the mean of exp(-2 squared distance) over all pairs of different sentences. Lower is better in both.",
        f"A point a model; alignment and uniformity of each: {told}.",
        lambda: pictures.draw_alignment_uniformity(values),
    )


def _score_and_cost(diagnoses: Sequence[Diagnosis]) -> _Drawing:
    values = {one.name: (one.spearman, one.gmac) for one in diagnoses}
    told = "; ".join(f"{name} {score:.2f} at {cost:.2f} GMAC" for name, (score, cost) in values.items())
    return _Drawing(
        "score_and_cost",
        "Score and cost",
        "Spearman x 100 over the operations of one sentence.",
        f"A point a model: {told}.",
        lambda: pictures.draw_score_and_cost(values),
    )


def _cosine_density(diagnoses: Sequence[Diagnosis]) -> _Drawing:
    edges = diagnoses[0].density.edges
    columns = ["model", *(f"{low:g} to {high:g}" for low, high in pairwise(edges))]
    rows = [
        [one.name, *("-" if math.isnan(mean) else f"{mean:.3f}" for mean in one.density.means)] for one in diagnoses
    ]
    return _Drawing(
        "cosine_density",
        "Cosines by gold score",
        "The pairs are divided by fifths of the range of gold scores; a score on an edge belongs to the lower fifth. "
        "The table has the mean cosine of each fifth. The better a model, the further right each ridge lies of the one "
        "below it (JTCSE Fig. 5).",
        "Density of the cosines for each fifth of the gold scores, a panel a model; the means are in the table.",
        lambda: pictures.draw_cosine_density({one.name: one.density for one in diagnoses}),
        Table(columns, rows),
        _TWO_PANELS,
    )


def _cls_energy(diagnoses: Sequence[Diagnosis], plan: Plan) -> _Drawing | None:
    values = _by_encoder({one.name: one.energy for one in diagnoses})
    if not values:
        return None
    depth = max(len(energy.mean) for energy in values.values())
    rows = [[name, *_padded([f"{mean:.3f}" for mean in energy.mean], depth)] for name, energy in values.items()]
    return _Drawing(
        "cls_energy",
        "E_CLS by layer",
        "E_CLS (JTCSE Eq. 6): norm of the CLS row of a layer's attention context (all heads, before the output "
        f"projection) over the norm of all other rows together; mean over {len(plan.sample()[0])} sentences. It falls "
        "with the length of a sentence, so it compares models on the same text only.",
        "A line an encoder: mean E_CLS over layers; the values are in the table.",
        lambda: pictures.draw_cls_energy(values),
        Table(["encoder", *(f"layer {layer}" for layer in range(1, depth + 1))], rows),
    )


def _attention_sink(diagnoses: Sequence[Diagnosis], plan: Plan) -> _Drawing | None:
    values = _by_encoder({one.name: one.sink for one in diagnoses})
    if not values:
        return None
    rows = [[name, *(f"{100 * share:.0f} %" for share in sink.mass.mean(axis=0))] for name, sink in values.items()]
    return _Drawing(
        "attention_sink",
        "Where attention goes",
        f"The sentence: {plan.sentence}\n\n"
        "Share of each layer's attention that CLS, SEP, punctuation and words receive, averaged over heads and asking "
        "tokens. The table has the mean over layers.",
        "A heat map an encoder: layers down, groups of tokens across, the share in per cent in each cell.",
        lambda: pictures.draw_attention_sink(values),
        Table(["encoder", *GROUPS], rows),
        _TWO_PANELS,
    )


def _modulus(diagnoses: Sequence[Diagnosis], plan: Plan) -> _Drawing | None:
    values = _by_encoder({one.name: one.modulus for one in diagnoses})
    if not values:
        return None
    rows = [
        [
            name,
            *(
                "-" if norms is None else f"{norms.mean():.2f} ± {norms.std():.2f}"
                for norms in (one.hidden, one.pooler)
            ),
        ]
        for name, one in values.items()
    ]
    return _Drawing(
        "modulus",
        "Moduli",
        f"Euclidean norms of the last layer's CLS state and of the pooler output, over {len(plan.sample()[0])} "
        "sentences. The table has mean and standard deviation.",
        "Histograms of both norms, a line an encoder; means and deviations are in the table.",
        lambda: pictures.draw_modulus(values),
        Table(["encoder", "last CLS state", "pooler output"], rows),
        _TWO_PANELS,
    )


def _sentence_map(diagnoses: Sequence[Diagnosis], plan: Plan) -> _Drawing | None:
    values = {one.name: one.sentence_map for one in diagnoses if one.sentence_map is not None}
    if not values:
        return None
    sentences, joined = plan.sample()
    how = {
        "pca": "Principal components of the unit vectors; the axes of two models are not the same.",
        "tsne": "t-SNE of the unit vectors: neighbours are kept together, distances and axes mean nothing.",
    }[plan.map_method]
    return _Drawing(
        "sentence_map",
        "Map of the sentences",
        f"{len(sentences)} sentences. {how} Squares joined by a line are the two sentences of "
        f"a positive pair ({len(joined)} lines).",
        "A panel a model: a dot a sentence, squares joined by a line for the two of a positive pair.",
        lambda: pictures.draw_sentence_map(values, joined),
        least_width=_TWO_PANELS,
    )


def _by_encoder(found: Mapping[str, Mapping[str, Value]]) -> dict[str, Value]:
    return {f"{name}, {label}" if label else name: value for name, own in found.items() for label, value in own.items()}


def _padded(cells: list[str], width: int) -> list[str]:
    return cells + [""] * (width - len(cells))
