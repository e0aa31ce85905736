"""Whatever a file or an override holds, it is read or refused in a sentence; nothing else is
raised.
"""

import csv
import io
import json
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from st_jtcse.data import Source, load_labelled, load_pairs, load_sentences
from st_jtcse.errors import UserError
from st_jtcse.recipe import extends, yaml_source
from st_jtcse.recipe.load import load_recipe
from st_jtcse.recipe.overrides import apply

# The same examples in every run.
bounded = settings(max_examples=25, derandomize=True, deadline=None, database=None)

RECIPE = {
    "name": "x",
    "seed": 1,
    "output_dir": "out",
    "data": {"train": "a.txt"},
    "args": {"max_steps": 2},
    "evaluate": {"dev": "p.jsonl", "score_range": [0, 5]},
    "stages": [
        {
            "name": "one",
            "model": {"base": "embedded"},
            "loss": {"type": "SimCSELoss", "temperature": 0.05},
        }
    ],
}
KEYS = sorted(
    {
        *RECIPE,
        "train",
        "file",
        "dev",
        "model",
        "base",
        "loss",
        "type",
        "sweep",
        "seeds",
        "push",
        "extends",
    }
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(KEYS)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner)
    ),
    max_leaves=8,
)
# Text that has a chance to be YAML, and bytes that have none.
pieces = st.sampled_from(
    [
        *KEYS,
        ": ",
        "- ",
        "\n",
        "  ",
        "[",
        "]",
        "{",
        "}",
        "'",
        '"',
        "&a",
        "*a",
        "!!int",
        "|",
        "#",
        "1e5",
    ]
)
yaml_like = st.lists(pieces | st.text(max_size=3), max_size=30).map("".join)


@contextmanager
def told():
    """Let a UserError of whole sentences pass, and nothing else."""
    try:
        yield
    except UserError as error:
        assert error.faults and all(fault.endswith((".", "?")) for fault in error.faults)


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def written(path, content):
    path.write_bytes(
        content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    )
    return path


@bounded
@given(content=st.binary(max_size=60) | yaml_like)
def test_a_recipe_file(folder, content):
    with told():
        extends.load(written(folder / "r.yaml", content), "r.yaml")


@bounded
@given(key=st.sampled_from(KEYS), value=values)
def test_what_a_recipe_holds(folder, key, value):
    with told():
        load_recipe(str(written(folder / "r.yaml", yaml_source.dump({**RECIPE, key: value}))))


@bounded
@given(block=st.sampled_from(["model", "loss", "args", "data", "evaluate"]), value=values)
def test_what_a_stage_holds(folder, block, value):
    stage = {**RECIPE["stages"][0], block: value}
    with told():
        load_recipe(
            str(written(folder / "r.yaml", yaml_source.dump({**RECIPE, "stages": [stage]})))
        )


keys = st.lists(
    st.sampled_from([*KEYS, "0", "one", "1", "-1", ""]) | st.text(max_size=4), max_size=4
).map(".".join)


@bounded
@given(override=st.text(max_size=20) | st.builds("{}={}".format, keys, yaml_like))
def test_an_override(folder, override):
    path = written(folder / "r.yaml", yaml_source.dump(RECIPE))
    _, faults = apply(extends.load(path, "r.yaml"), [override])
    assert all(fault.startswith("--set") for fault in faults)
    with told():
        load_recipe(str(path), [override])


cells = (
    scalars
    | st.lists(scalars, max_size=2)
    | st.just("\ud800")
    | st.just(10**400)
    | st.just(float("inf"))
)
rows = st.lists(
    st.dictionaries(
        st.sampled_from(["sentence", "sentence1", "sentence2", "score", "label"]), cells, max_size=5
    ),
    max_size=4,
)
ENDINGS = [".txt", ".jsonl", ".csv", ".parquet", ".gz"]


def read_all(path):
    """Read a file in each of the ways that data are read."""
    source = Source(file=path)
    for read in (
        lambda: load_sentences([source]),
        lambda: load_pairs(source, (0.0, 5.0)),
        lambda: load_labelled([source], "scores", (0.0, 5.0)),
        lambda: load_labelled([source], "classes", (0.0, 5.0)),
        lambda: load_labelled([source], "none", (0.0, 5.0)),
    ):
        with told():
            read()


@bounded
@given(ending=st.sampled_from(ENDINGS), content=st.binary(max_size=60) | st.text(max_size=60))
def test_a_data_file(folder, ending, content):
    read_all(written(folder / f"data{ending}", content))


@bounded
@given(rows=rows)
def test_rows_of_jsonl(folder, rows):
    read_all(written(folder / "data.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))


@bounded
@given(rows=st.lists(st.lists(st.text(max_size=6), max_size=4), max_size=4))
def test_rows_of_csv(folder, rows):
    text = io.StringIO()
    csv.writer(text).writerows([["sentence1", "sentence2", "score"], *rows])
    read_all(written(folder / "data.csv", text.getvalue()))


@bounded
@given(
    places=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=9),
    end=st.integers(0, 10_000),
)
def test_a_damaged_parquet_file(folder, places, end):
    file = io.BytesIO()
    pq.write_table(pa.table({"sentence": ["a dog", "a cat"] * 9, "score": [1.0, 2.0] * 9}), file)
    content = bytearray(file.getvalue())
    for place, value in places:
        content[place % len(content)] = value
    read_all(written(folder / "data.parquet", bytes(content[: end or None])))
