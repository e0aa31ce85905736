"""Pictures: the same numbers give the same bytes, whatever the user's settings, and any name can be
drawn.
"""

import sys
from functools import partial

import matplotlib
import numpy as np
import pytest
from processes import run_code

from st_jtcse.errors import UserError
from st_jtcse.papers.diagnostics import AttentionSink, Modulus, SentenceMap, cosine_density
from st_jtcse.papers.diagnostics.encoders import CLSEnergy
from st_jtcse.papers.reports import diagnosis_pictures as pictures
from st_jtcse.papers.reports.diagnosis_report import best_threshold
from st_jtcse.reports.drawing import NARROW, WIDE, series, to_bytes

NAMES = ("plain", "_hidden", "a_$b$", "<b>")
DRAW = np.random.default_rng(0)


def by_name(make):
    return {name: make() for name in NAMES}


def sink():
    maps = DRAW.dirichlet(np.ones(3), (6, 3))
    return AttentionSink(["[CLS]"] * 3, ["CLS"] * 3, DRAW.dirichlet(np.ones(4), 6), maps)


POINTS = by_name(lambda: tuple(DRAW.random(2)))
DRAWINGS = {
    "points": (
        partial(pictures.draw_points, over="uniformity", shown="alignment", from_zero=True),
        POINTS,
    ),
    "cls_energy": (
        pictures.draw_cls_energy,
        by_name(lambda: CLSEnergy(DRAW.random(6), DRAW.random(6))),
    ),
    "attention_sink": (
        pictures.draw_attention_sink,
        by_name(lambda: sink()),
    ),
    "attention_maps": (pictures.draw_attention_maps, by_name(lambda: sink())),
    "cosines": (pictures.draw_cosines, by_name(lambda: DRAW.uniform(-1, 1, 60))),
    "modulus": (
        pictures.draw_modulus,
        by_name(lambda: Modulus(DRAW.random(50), DRAW.random(50)))
        | {"no pooler": Modulus(DRAW.random(50), None)},
    ),
    "cosine_density": (
        pictures.draw_cosine_density,
        by_name(lambda: cosine_density(DRAW.uniform(-0.5, 1, 60), DRAW.uniform(0, 5, 60), (0, 5))),
    ),
    "sentence_map": (
        lambda values: pictures.draw_sentence_map(values, np.array([[0, 1], [2, 3]])),
        by_name(lambda: SentenceMap(DRAW.random((9, 2)), DRAW.random(2)))
        | {"tsne": SentenceMap(np.eye(9, 2), None)},
    ),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_same_numbers_give_the_same_bytes(name):
    draw, values = DRAWINGS[name]
    svg, png = (to_bytes(draw(values), kind) for kind in ("svg", "png"))
    with matplotlib.rc_context(
        {"font.size": 30, "lines.linewidth": 9, "axes.facecolor": "red", "svg.hashsalt": "x"}
    ):
        assert to_bytes(draw(values), "svg") == svg
        assert to_bytes(draw(values), "png") == png
        assert matplotlib.rcParams["font.size"] == 30
    assert b"<dc:date>" not in svg and png.startswith(b"\x89PNG")


def test_every_model_is_in_the_legend():
    for width in (WIDE, NARROW):
        (legend,) = pictures.draw_points(POINTS, width, over="x", shown="y").legends
        assert [text.get_text().strip() for text in legend.get_texts()] == list(NAMES)


def test_a_legend_is_not_wider_than_its_picture():
    long = "distilled-from-the-sum-of-two-towers-" * 4
    figure = pictures.draw_points(
        {"short": (1.0, 2.0), long: (2.0, 1.0)}, NARROW, over="x", shown="y"
    )
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert legend.get_window_extent().width <= figure.bbox.width
    assert "".join(legend.get_texts()[1].get_text().split()) == long


def test_encoders_that_look_the_same_are_told_apart_by_their_difference():
    first = CLSEnergy(np.array([0.3, 0.2]), np.zeros(2))
    values = {
        "a": first,
        "b": CLSEnergy(first.mean + 0.001, np.zeros(2)),
        "deeper": CLSEnergy(np.ones(3), np.ones(3)),
    }
    energies, differences = pictures.draw_cls_energy(values).axes
    assert len(energies.lines) == 3
    assert [list(np.round(line.get_ydata(), 6)) for line in differences.lines] == [
        [0, 0],
        [0.001, 0.001],
    ]


def test_the_cells_of_the_heat_map_say_their_share():
    sink = AttentionSink(["[CLS]"], ["CLS"], np.array([[0.5, 0.25, 0.05, 0.2]]), np.ones((1, 1, 1)))
    axes = pictures.draw_attention_sink({"model": sink}).axes[0]
    assert [text.get_text() for text in axes.texts] == ["50", "25", "5", "20"]
    assert axes.get_title() == "model" and axes.get_ylabel() == "layer"


def test_series_differ_without_colour():
    looks = [look for look, _ in zip(series(), range(40))]
    assert len({(look["marker"], str(look["linestyle"])) for look in looks}) == 40


def test_a_density_without_values_is_drawn_empty():
    found = cosine_density([0.5], [5], (0, 5))
    assert to_bytes(pictures.draw_cosine_density({"one pair": found}), "png").startswith(b"\x89PNG")


def test_without_matplotlib_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError) as caught:
        pictures.draw_points(POINTS, over="x", shown="y")
    assert caught.value.faults == (
        "Pictures need matplotlib; install it with: pip install 'st-jtcse[plots]'.",
    )


def test_drawing_needs_no_window_and_nothing_is_imported_before_it(tmp_path):
    program = (
        "import sys; from st_jtcse.papers.reports import diagnosis_pictures as pictures\n"
        "from st_jtcse.reports.drawing import to_bytes\n"
        "assert 'matplotlib' not in sys.modules\n"
        "to_bytes(pictures.draw_points({'a': (1.0, 2.0)}, over='x', shown='y'), 'png')\n"
        "assert 'matplotlib.figure' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    run_code(program, folder=tmp_path)


def test_a_decision_is_by_the_threshold_that_is_right_most_often():
    positive = np.array([True, False, True, False])
    assert best_threshold(np.array([0.9, 0.8, 0.7, 0.1]), positive) == 0.9
    assert best_threshold(np.array([0.9, 0.1, 0.7, 0.8]), positive) == 0.9
    assert best_threshold(np.array([0.9, 0.1, 0.8, 0.2]), positive) == 0.8
    assert best_threshold(np.array([0.9, 0.1]), np.array([False, False])) == float("inf")
