"""Neighbourhood means against the equation by hand in float64, chunked or not, by an index or not."""

import json
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
import torch.distributed as dist
from datasets import Dataset
from processes import run_two

from st_jtcse.data import neighbours
from st_jtcse.data.neighbours import (
    compared,
    memory_of_means,
    neighbourhood_means,
    topic_weight,
    trial_search,
    with_neighbourhood_means,
)
from st_jtcse.errors import UserError


def by_hand(vectors, count, weight):
    unit = vectors.astype(np.float64)
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    result = []
    for row in range(len(unit)):
        others = [(float(unit[row] @ unit[at]), at) for at in range(len(unit)) if at != row]
        nearest = sorted((pair for pair in others if pair[0] <= 0.9999), reverse=True)[:count]
        mean = sum(max(cosine, 0.0) * unit[at] for cosine, at in nearest)
        mixed = (1 - weight) * unit[row] + weight * mean / np.linalg.norm(mean)
        result.append(mixed / np.linalg.norm(mixed))
    return np.array(result)


@pytest.mark.parametrize("chunk", [7, 1024])
@pytest.mark.parametrize("exact", [39, 40])
def test_the_equation(chunk, exact):
    if exact < 40:
        pytest.importorskip("faiss")
    vectors = np.random.default_rng(0).normal(size=(40, 6)) * 3 + 1
    found = neighbourhood_means(vectors, 5, 0.3, chunk=chunk, exact=exact)
    assert found == pytest.approx(by_hand(vectors, 5, 0.3), abs=1e-6)


def test_an_index_looks_behind_copies_and_gives_the_same_twice():
    pytest.importorskip("faiss")
    draw = np.random.default_rng(5)
    vectors = np.concatenate(
        [draw.normal(size=(300, 6)), np.repeat(draw.normal(size=(1, 6)), 30, axis=0)]
    )
    vectors = vectors.astype(np.float32)
    twice = [neighbourhood_means(vectors, 4, 0.5, exact=0) for _ in range(2)]
    assert np.array_equal(*twice)
    plain = neighbourhood_means(vectors, 4, 0.5)
    assert np.isclose(twice[0], plain, atol=1e-6).all(axis=1).mean() > 0.9
    # The copies of one text have its neighbours, not each other.
    assert twice[0][300:] == pytest.approx(plain[300:], abs=1e-6)
    copies = vectors[300:]
    assert neighbourhood_means(copies, 4, 0.5, exact=0) == pytest.approx(
        neighbourhood_means(copies, 4, 0.5)
    )


def test_weight_zero_keeps_directions_and_copies_are_no_neighbours():
    vectors = np.random.default_rng(1).normal(size=(12, 4))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert neighbourhood_means(vectors, 3, 0.0) == pytest.approx(unit, abs=1e-6)
    doubled = np.concatenate([vectors, vectors[:4]])
    assert neighbourhood_means(doubled, 3, 0.5)[0] == pytest.approx(
        by_hand(doubled, 3, 0.5)[0], abs=1e-6
    )


def test_a_text_without_neighbours_of_positive_cosine_stays():
    vectors = np.array([[1.0, 0.0], [-1.0, 0.1], [-1.0, -0.1]])
    assert neighbourhood_means(vectors, 1, 0.9)[0] == pytest.approx([1.0, 0.0])


def test_too_few_texts_are_refused():
    with pytest.raises(UserError, match="more than 3 texts"):
        neighbourhood_means(np.eye(3), 3, 0.5)


def test_a_label_column_is_replaced_at_its_length():
    vectors = (np.random.default_rng(2).normal(size=(30, 5)) * 4).astype(np.float16)
    dataset = Dataset.from_dict(
        {"sentence": [f"text {row}" for row in range(30)], "label": vectors}
    )
    mixed, weight = with_neighbourhood_means(dataset, 4, 0.5)
    mixed = mixed.with_format("numpy")
    lengths = np.linalg.norm(vectors.astype(float), axis=1, keepdims=True)
    assert weight == 0.5
    assert mixed["label"][:] == pytest.approx(
        lengths * by_hand(vectors, 4, 0.5), rel=1e-2, abs=5e-3
    )
    assert str(mixed.features["label"].feature.dtype) == "float16"
    assert list(mixed["sentence"][:]) == dataset["sentence"][:]


def test_the_weight_follows_the_fall_of_similarity():
    draw = np.random.default_rng(3)
    centres = draw.normal(size=(10, 24))
    found = {}
    for name, spread in (("topics", 0.5), ("between", 0.58), ("wordings", 2.5)):
        # Each text twice, almost: the second is the nearest neighbour where there is no topic
        # around both.
        vectors = np.repeat(centres, 20, axis=0) + spread * draw.normal(size=(200, 24))
        vectors = np.concatenate([vectors, vectors + 0.1 * draw.normal(size=(200, 24))])
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = unit @ unit.T
        ordered = -np.sort(-np.where(cosines > 0.9999, -1, cosines), axis=1)
        fall = (ordered[:, 0].mean() - ordered[:, 4].mean()) / (1 - cosines.mean())
        found[name] = topic_weight(vectors, 5)
        assert found[name] == pytest.approx(0.5 * min(1, max(0, (0.20 - fall) / 0.04)), abs=1e-4)
    assert found["topics"] == 0.5 and 0 < found["between"] < 0.5 and found["wordings"] == 0


def test_without_topics_a_label_column_stays():
    dataset = Dataset.from_dict(
        {"label": np.random.default_rng(4).normal(size=(30, 40)).astype(np.float16)}
    )
    dataset = Dataset.from_dict(
        {"label": np.concatenate([dataset["label"], np.array(dataset["label"]) * 1.2 + 0.05])}
    )
    assert with_neighbourhood_means(dataset, 4, None) == (dataset, 0.0)


def find_together(folder, exact):
    """What one of two processes does: find its share of the neighbours, and note its rows."""
    dist.init_process_group("gloo")
    searches, rows = ("_nearest", "_nearest_indexed"), []

    def noting(search):
        def noted(*given):
            for found in search(*given):
                rows.append(found[0].start)
                yield found

        return noted

    for name in searches:
        setattr(neighbours, name, noting(getattr(neighbours, name)))
    means = neighbourhood_means(clusters(), 5, 0.3, chunk=16, exact=exact, together=True)
    labelled, _ = with_neighbourhood_means(labels(), 3, None)
    np.save(folder / f"means-{dist.get_rank()}.npy", means)
    np.save(folder / f"labels-{dist.get_rank()}.npy", labelled.with_format("numpy")["label"][:])
    (folder / f"rows-{dist.get_rank()}.json").write_text(json.dumps(rows))
    dist.destroy_process_group()


def clusters():
    draw = np.random.default_rng(3)
    return (draw.normal(size=(8, 12)).repeat(10, axis=0) + draw.normal(size=(80, 12))) * 2


def labels():
    column = clusters().astype(np.float16).tolist()
    return Dataset.from_dict({"label": column})


@pytest.mark.parametrize("exact", [79, 80])
def test_two_processes_each_find_a_share_and_have_the_bytes_of_one(tmp_path, exact):
    if exact < 80:
        pytest.importorskip("faiss")
    run_two(find_together, tmp_path, exact, folder=tmp_path)
    means = neighbourhood_means(clusters(), 5, 0.3, chunk=16, exact=exact)
    labelled, weight = with_neighbourhood_means(labels(), 3, None)
    assert weight > 0
    expected = labelled.with_format("numpy")["label"][:]
    for rank, starts in enumerate([[0, 32, 64], [16, 48]]):
        assert np.load(tmp_path / f"means-{rank}.npy").tobytes() == means.tobytes()
        assert np.load(tmp_path / f"labels-{rank}.npy").tobytes() == expected.tobytes()
        found = json.loads((tmp_path / f"rows-{rank}.json").read_text())
        assert found[: len(starts)] == starts


@pytest.mark.parametrize(
    ("texts", "size", "weight"), [(3000, 32, 0.4), (2000, 512, None), (1200, 1024, 0.4)]
)
def test_the_search_takes_the_memory_that_is_foretold(texts, size, weight):
    vectors = np.random.default_rng(0).normal(size=(texts, size)).astype(np.float16)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), size)
    rows = Dataset(pa.table({"label": column}))
    tracemalloc.start()
    with_neighbourhood_means(rows, 10, weight)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    foretold = memory_of_means(texts, size, 10, weighed=weight is None)
    assert foretold == pytest.approx(peak, rel=0.25)


def test_pairs_are_counted_as_they_are_compared():
    assert compared(2000, 1, weighed=False) == 4e6
    assert compared(2000, 4, weighed=True) == 1e6 + 4e6  # Each process weighs for itself.
    # Ten thousand cells: ten rounds on 256 texts of each; every text's cell; 16 cells' texts.
    learnt, put, searched = 10 * 2.56e6 * 1e4, 1e8 * 1e4, 1e8 * (1e4 + 16 * 1e4)
    assert compared(10**8, 32, weighed=False) == learnt + put + searched / 32


def test_a_search_is_tried_at_its_own_cost():
    search, pairs = trial_search(8, indexed=False)
    assert pairs == 1024 * 20_000
    assert [near.shape for _, near, _ in search()] == [(1024, 10)]
    pytest.importorskip("faiss")
    search, pairs = trial_search(8, indexed=True)
    # 141 cells.
    assert pairs == 10 * 20_000 * 141 + 20_000 * 141 + 20_000 * (141 + 16 * 20_000 / 141)
    assert sum(len(near) for _, near, _ in search()) == 20_000
