"""The results of `st-eval` as one page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from st_jtcse.diagnostics.drawing import house_style, legend_name, panels, series, to_bytes
from st_jtcse.errors import UserError
from st_jtcse.evaluation import report
from st_jtcse.reports.page import Picture, Section, Table, render_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "index.html"


def suite_pictures(data: Mapping[str, Any]) -> dict[str, Figure]:
    """Draw every suite that has a result, by name; none where matplotlib is not installed.

    Args:
        data: What `results.json` holds.
    """
    suites = {name: table for name, table in data["suites"].items() if any(_scores(table))}
    try:
        return {name: draw_suite(table) for name, table in suites.items()}
    except UserError:  # The tables say it all.
        return {}


def evaluation_page(data: Mapping[str, Any], pictures: Mapping[str, Figure]) -> str:
    """Return a page with a table for each suite, and its picture if there is one.

    Args:
        data: What `results.json` holds.
        pictures: From :func:`suite_pictures`.
    """
    model = data["model"]
    about = (
        f"{model['parameters'] / 1e6:.1f}M parameters, {model['dimension']} components. Scores are in percent. "
        f"SHA-256 of the model: {model['sha256']}."
    )
    sections = [Section("The model", about)]
    for name, table in data["suites"].items():
        beside = f"Beside the figures of {table['source']}." if table["source"] else ""
        notes = [table["note"], *(f"{row['label']}: {row['note']}" for row in table["rows"] if row["note"])]
        text = "\n\n".join(filter(None, [beside, *notes]))
        picture = None
        if name in pictures:
            alt = f"{name}: this model's scores among the reported ones. {', '.join(_scores(table))}."
            picture = Picture(to_bytes(pictures[name], "svg"), alt, 600)
        sections.append(Section(name, text, Table(report.columns(table), report.cells(table)), picture))
    if data["missing"]:
        told = "\n\n".join(f"{key}: {reason}" for key, reason in data["missing"].items())
        sections.append(Section("Without a result", told))
    return render_page(f"Evaluation of {model['name']}", sections)


def draw_suite(table: Mapping[str, Any]) -> Figure:
    """Draw a row for each task: this model's score among the reported ones.

    Args:
        table: One of the suites of `results.json`.

    Raises:
        UserError: matplotlib is not installed.
    """
    names = report.columns(table)[2:]
    rows = table["rows"]
    with house_style():
        figure, (axes,) = panels(1, columns=1, width=7.5, height=1.4 + 0.28 * len(rows))
        for name, style in zip(names, series()):
            scores = [row["score"] if name == report.OURS else row["reported"].get(name) for row in rows]
            points = [(score, place) for place, score in enumerate(scores) if score is not None]
            own = {"markersize": 7, "zorder": 3} if name == report.OURS else {"markersize": 4}
            xs, ys = ([point[at] for point in points] for at in (0, 1))
            axes.plot(xs, ys, label=legend_name(name), **style | {"linestyle": "none"} | own)
        axes.set_yticks(range(len(rows)), [row["label"] for row in rows])
        axes.invert_yaxis()
        axes.set_xlabel("score (%)")
        figure.legend(loc="outside lower center", ncols=4)
        return figure


def _scores(table: Mapping[str, Any]) -> list[str]:
    return [f"{row['label']} {row['score']:.2f}" for row in table["rows"] if row["score"] is not None]
