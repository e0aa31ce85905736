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


def evaluation_page(data: Mapping[str, Any]) -> str:
    """Return a page with a table for each suite and, where matplotlib is installed, a picture of it.

    Args:
        data: What `results.json` holds.
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
        picture = _picture(name, table)
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


def _picture(name: str, table: Mapping[str, Any]) -> Picture | None:
    if not any(row["score"] is not None for row in table["rows"]):
        return None
    try:
        figure = draw_suite(table)
    except UserError:  # Without matplotlib the tables say it all.
        return None
    told = ", ".join(f"{row['label']} {row['score']:.2f}" for row in table["rows"] if row["score"] is not None)
    return Picture(to_bytes(figure, "svg"), f"{name}: this model's scores among the reported ones. {told}.", 600)
