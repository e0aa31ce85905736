"""What the plan says of a recipe's gears, by numbers that can be checked by hand."""

from conftest import make_sentences

from st_jtcse.recipe.load import load_recipe
from st_jtcse.training.gears import gear_lines
from st_jtcse.training.rehearsal import rehearse

# Seconds of a step, and of a text.
STEP, TEXT = {"ranked": 1.0, "distilled": 0.5}, 0.01


def told(texts, *overrides, step=STEP):
    return [
        line.partition(";")[0]
        for line in gear_lines(load_recipe("adapt", list(overrides)), texts, step, TEXT)
    ]


def test_each_gear_takes_its_steps_and_each_encoder_embeds_the_text_once():
    # 100 s; 80 + 100 + 2 * 100 s; 2 * 157 + 200 + 3 * 100 s.
    assert told(10_000) == [
        "effort=seconds: about 2 minutes here",
        "effort=minutes (this run): about 6 minutes here",
        "effort=full: about 14 minutes here",
    ]


def test_of_a_larger_text_a_sample_is_embedded_but_by_what_trains_on_all():
    # 200 s; 80 + 100 + 2 * 200 s; 2 * 1563 + 200 + 1000 + 3 * 200 s.
    assert told(100_000, "effort=full", step={"ranked_cls": 1.0, "distilled_copies": 0.5}) == [
        "effort=seconds: about 3 minutes here",
        "effort=minutes: about 10 minutes here",
        "effort=full (this run): about 82 minutes here",
    ]


def test_a_gear_whose_steps_nothing_rehearsed_is_not_timed():
    assert told(10_000, "effort=seconds", step={}) == [
        "effort=seconds (this run): about 2 minutes here",
        "effort=minutes: not timed",
        "effort=full: not timed",
    ]


def test_gears_that_are_alike_are_not_told():
    assert told(10_000, "purpose=search", step={}) == []
    assert gear_lines(load_recipe("lsrns-mini"), 10_000, STEP, TEXT) == []


def test_a_rehearsal_tells_them_with_what_each_gained(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(dict.fromkeys(make_sentences(400))) + "\n")
    recipe = load_recipe("adapt", [f"data.train={text}", "effort=seconds"])
    lines = rehearse(recipe, recipe.choose([]))
    gears = [line for line in lines if line.startswith("effort=")]
    assert len(gears) == 3
    assert gears[0] == (
        "effort=seconds (this run): about a minute here; gained 1.7 points (docs/adapt.md)"
    )
