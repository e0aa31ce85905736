"""`data.vectors`: a map for vectors of a model that cannot be trained."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

from st_jtcse.cli.train import main


def clusters(count, seed=0, size=24):
    """Vectors about eight centres, far from the origin, and the centres' numbers."""
    centres = np.random.default_rng(9).normal(size=(8, size))
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 8, count)
    return centres[labels] + 1.1 * draw.normal(size=(count, size)) + 2, labels


def adapt(folder, file, *options):
    own = ["adapt", "--set", f"data.vectors={file}", "--output-dir", str(folder / "out")]
    return main([*own, *options])


def test_vectors_get_a_map_that_three_lines_of_numpy_apply(tmp_path, capsys):
    vectors, _ = clusters(800)
    np.save(tmp_path / "v.npy", vectors.astype(np.float32))
    held, labels = clusters(300, seed=1)
    table = pa.table({"embedding": held.tolist(), "label": labels})
    pq.write_table(table, tmp_path / "mine.parquet")
    test = ["--set", f"evaluate.test.mine={tmp_path / 'mine.parquet'}"]
    assert adapt(tmp_path, tmp_path / "v.npy", *test, "--dry-run") == 0
    assert not (tmp_path / "out").exists()
    assert adapt(tmp_path, tmp_path / "v.npy", *test) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    scores = {way["name"]: way["dev"] for way in results["ways"]}
    assert results["chosen"] == max(scores, key=scores.get) != "as it is"
    assert [verdict["verdict"] for verdict in results["verdicts"]] == ["better"]
    assert "mine: better" in capsys.readouterr().out
    page = (tmp_path / "out" / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {"vectors": held}
    exec(code.replace("map.safetensors", str(tmp_path / "out" / "map.safetensors")), names)
    found = load_file(tmp_path / "out" / "map.safetensors")
    unit = held / np.linalg.norm(held, axis=1, keepdims=True)
    expected = unit @ found["matrix"] + found["bias"]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(names["mapped"], expected, atol=1e-6)
    # What lies there is not replaced.
    assert adapt(tmp_path, tmp_path / "v.npy") == 2


def test_all_kinds_of_files_and_half_precision_give_one_map(tmp_path):
    vectors, _ = clusters(300)
    half = vectors.astype(np.float16)
    np.save(tmp_path / "v.npy", half)
    save_file({"embeddings": half, "ids": np.arange(300)}, tmp_path / "v.safetensors")
    pq.write_table(pa.table({"vector": half.astype(np.float32).tolist()}), tmp_path / "v.parquet")
    maps = []
    for kind in ("npy", "safetensors", "parquet"):
        out = tmp_path / kind
        out.mkdir()
        assert adapt(out, tmp_path / f"v.{kind}") == 0
        maps.append(load_file(out / "out" / "map.safetensors")["matrix"])
    np.testing.assert_array_equal(maps[0], maps[1])
    np.testing.assert_array_equal(maps[0], maps[2])


def npy(vectors):
    return lambda path: np.save(path, vectors)


GOOD = clusters(120)[0]


@pytest.mark.parametrize(
    ("write", "name", "told"),
    [
        (npy(GOOD[:80]), "v.npy", "90 vectors or more, found 80"),
        (npy(np.where(np.arange(120)[:, None] == 6, np.nan, GOOD)), "v.npy", "Vector 7 is not fin"),
        (npy(np.where(np.arange(120)[:, None] == 6, 0.0, GOOD)), "v.npy", "Vector 7 is zero"),
        (npy(GOOD.astype(int)), "v.npy", "a matrix of floats, found int64"),
        (npy(GOOD[0]), "v.npy", "found float64 of shape (24,)"),
        (npy(np.array([None, 1], dtype=object)), "v.npy", "cannot be read as npy"),
        (
            lambda path: pq.write_table(pa.table({"vector": [[1.0, 2.0], [1.0]] * 60}), path),
            "v.parquet",
            "of one size, found 1 to 2 components",
        ),
        (
            lambda path: pq.write_table(pa.table({"text": ["a"]}), path),
            "v.parquet",
            "expected a column called 'vector', found text; rename it.",
        ),
        (
            lambda path: save_file({"a": GOOD, "b": GOOD}, path),
            "v.safetensors",
            "expected one array, or one called 'vectors', found a, b; keep one.",
        ),
        (lambda path: path.write_text("x"), "v.safetensors", "cannot be read as safetensors"),
        (lambda path: path.write_text("x"), "v.csv", "ends with .npy, .safetensors, .parquet"),
        (lambda path: None, "v.npy", "v.npy does not exist; check the path."),
    ],
)
def test_vectors_that_cannot_be_used_are_refused(tmp_path, capsys, write, name, told):
    write(tmp_path / name)
    assert adapt(tmp_path, tmp_path / name) == 2
    said = capsys.readouterr().err
    assert told in said and "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_a_recipe_without_maps_has_nothing_to_fit(tmp_path, capsys):
    npy(GOOD)(tmp_path / "v.npy")
    own = ["simcse-mini", "--set", f"data.vectors={tmp_path / 'v.npy'}"]
    assert main([*own, "--output-dir", str(tmp_path / "out")]) == 2
    assert "the recipe has no stage with 'maps'" in capsys.readouterr().err
