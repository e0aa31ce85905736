"""st-diagnose: numbers, pictures and page of several models, or one sentence and nothing written."""

import json
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
from conftest import make_sentences
from safetensors.torch import load_file, save_file
from scipy.stats import rankdata
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from st_jtcse.cli.convert import main as convert
from st_jtcse.modules import MultiTokenizerEnsemble, ensemble_of, save_for_inference
from st_jtcse.papers.cli.diagnose import main

PICTURES = {
    "alignment_uniformity",
    "attention_sink",
    "cls_energy",
    "cosine_density",
    "modulus",
    "score_and_cls_energy",
    "attention_maps",
    "cosines",
    "score_and_cost",
    "sentence_map",
}


@pytest.fixture(scope="module")
def models(tower_folders, tmp_path_factory):
    """A single encoder called <b>, a twin and an ensemble, saved."""
    root = tmp_path_factory.mktemp("models")
    encoder = Transformer(str(tower_folders[0]))
    SentenceTransformer(modules=[encoder, Pooling(32, "cls")], device="cpu").save_pretrained(
        str(root / "<b>")
    )
    assert convert(["join", *map(str, tower_folders), str(root / "twin")]) == 0
    save_for_inference(ensemble_of(tower_folders, pooling="cls"), root / "ensemble")
    return [root / "<b>", root / "twin", root / "ensemble"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    sentences = make_sentences(24)
    rows = [
        {"sentence1": first, "sentence2": second, "score": score % 6}
        for score, (first, second) in enumerate(zip(sentences[::2], sentences[1::2]))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def diagnose(models, pairs, output, *options):
    return main([*map(str, models), "--pairs", str(pairs), "--output-dir", str(output), *options])


@pytest.fixture(scope="module")
def output(models, pairs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("output") / "diagnosis"
    assert diagnose(models, pairs, folder) == 0
    return folder


def record_of(folder):
    return json.loads((folder / "diagnostics.json").read_text())


def test_numbers_pictures_and_page_are_left(output):
    expected = {f"{name}.{kind}" for name in PICTURES for kind in ("svg", "png")}
    assert {path.name for path in output.iterdir()} == expected | {"diagnostics.json", "index.html"}
    assert [path.name for path in output.parent.iterdir()] == ["diagnosis"]


def test_the_numbers_are_those_of_the_models(output, models, pairs):
    rows = [json.loads(line) for line in pairs.read_text().splitlines()]
    sides = [[row[name] for row in rows] for name in ("sentence1", "sentence2")]
    evaluator = EmbeddingSimilarityEvaluator(
        *sides, [row["score"] for row in rows], write_csv=False
    )
    record = record_of(output)
    assert record["pairs"]["count"] == 12 and record["sentence"] == rows[0]["sentence1"]
    for found, folder in zip(record["models"], models):
        model = SentenceTransformer(str(folder), device="cpu")
        assert found["spearman"] == pytest.approx(
            100 * evaluator(model)["spearman_cosine"], abs=1e-3
        )
        assert found["parameters"] == sum(weight.numel() for weight in model.parameters())
        assert found["eta"] == pytest.approx(found["spearman"] / found["gmac"], rel=0.05)
        assert found["sentences_per_second"] > 0 and found["dimension"] == 32
        unit = [model.encode(side, normalize_embeddings=True).astype(float) for side in sides]
        (positive,) = np.nonzero([row["score"] > 4 for row in rows])
        distances = ((unit[0][positive] - unit[1][positive]) ** 2).sum(axis=1)
        assert found["alignment"] == pytest.approx(distances.mean(), abs=1e-5)
        energies = [part["cls_energy"]["mean"] for part in found["encoders"]]
        assert found["mean_cls_energy"] == pytest.approx(np.mean(energies), abs=1e-5)
    assert [[part["label"] for part in found["encoders"]] for found in record["models"]] == [
        [""],
        ["tower I", "tower II"],
        ["member 1", "member 2"],
    ]
    for layer in record["models"][1]["encoders"][1]["attention"]["mass"]:
        assert sum(layer.values()) == pytest.approx(1, abs=1e-5)
    assert record["models"][2]["notes"] == [
        "member 1: there is no pooler.",
        "member 2: there is no pooler.",
    ]


def test_the_page_shows_every_picture_and_escapes_names(output):
    page = (output / "index.html").read_text()
    images, headings = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag == "img":
                images.append(dict(attrs))

        def handle_data(self, data):
            if self.lasttag == "h1" and data.strip():
                headings.append(data)

    Reader().feed(page)
    assert headings[0] == "Diagnostics of <b>, twin, ensemble"
    assert (
        "<b>" not in page
        and "&lt;b&gt;, twin" in page
        and "http" not in page.replace("http-equiv", "")
    )
    assert len(images) == len(PICTURES) and all(image["alt"] for image in images)


def test_the_same_command_gives_the_same_pictures(output, models, pairs, tmp_path, capsys):
    assert diagnose(models, pairs, tmp_path / "again", "--cases", "2") == 0
    for path in output.iterdir():
        if path.suffix in (".svg", ".png"):
            assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name
    first, again = (record_of(folder) for folder in (output, tmp_path / "again"))
    for record in (first, again):
        for model in record["models"]:
            del model["sentences_per_second"]
    assert first == again
    told = capsys.readouterr()
    assert all(word in told.out for word in ("<b>", "twin", "ensemble", "uniformity", "index.html"))
    # The two pairs that the three rank most differently, on the page.
    rows = [json.loads(line) for line in pairs.read_text().splitlines()]
    cosines = [
        [
            model.similarity(*model.encode([row["sentence1"], row["sentence2"]])[:, None]).item()
            for row in rows
        ]
        for model in (SentenceTransformer(str(folder), device="cpu") for folder in models)
    ]
    apart = np.ptp([rankdata(scores) for scores in cosines], axis=0)
    page = (
        (tmp_path / "again" / "index.html")
        .read_text()
        .partition("2 pairs that the models rank most")[2]
    )
    shown = [
        row for row in rows if f">{row['sentence1']}</" in page and f">{row['sentence2']}</" in page
    ]
    assert shown == [rows[at] for at in sorted(np.argsort(-apart, kind="stable")[:2])]
    assert "ensemble. member 1: there is no pooler." in told.err


def test_options_reach_the_report(models, pairs, tmp_path):
    options = [
        "--sentence",
        "the dog runs",
        "--map",
        "tsne",
        "--sample-size",
        "6",
        "--seed",
        "7",
        "--cases",
        "1",
    ]
    options += ["--without-layer-norms", "*"]
    assert diagnose(models[:1], pairs, tmp_path / "out", *options, "--score-range", "0", "10") == 0
    assert (
        "1 pairs that the model and the gold scores"
        in (tmp_path / "out" / "index.html").read_text()
    )
    record = record_of(tmp_path / "out")
    assert (record["sentence"], record["map"], record["sample_size"], record["seed"]) == (
        "the dog runs",
        "tsne",
        6,
        7,
    )
    (model,) = record["models"]
    assert len(model["map_points"]) == 12
    assert model["encoders"][0]["attention"]["tokens"] == ["[CLS]", "the", "dog", "runs", "[SEP]"]
    # No pair of theirs lies in the highest fifth of 0 to 10: there is no alignment to draw.
    assert model["alignment"] is None and model["notes"] == [
        "No alignment: no pair scores above 8."
    ]
    assert not (tmp_path / "out" / "alignment_uniformity.svg").exists()


def test_a_plain_encoder_needs_its_pooling_said(tower_folders, output, pairs, tmp_path, capsys):
    told = refusal(capsys, tower_folders[:1], pairs, tmp_path / "out")
    assert "no modules.json" in told and told.endswith("add --pooling cls or --pooling mean.")
    assert not (tmp_path / "out").exists()
    assert diagnose(tower_folders[:1], pairs, tmp_path / "out", "--pooling", "cls") == 0
    assert (
        record_of(tmp_path / "out")["models"][0]["spearman"]
        == record_of(output)["models"][0]["spearman"]
    )


def test_code_of_a_model_runs_only_when_asked(models, pairs, tmp_path, capsys):
    members = [SentenceTransformer(str(folder), device="cpu") for folder in models[:2]]
    save_for_inference(
        SentenceTransformer(modules=[MultiTokenizerEnsemble(members)]), tmp_path / "mixed"
    )
    # A class of this package is nobody's code but ours.
    for number, options in enumerate(([], ["--trust-remote-code"])):
        assert diagnose([tmp_path / "mixed"], pairs, tmp_path / f"out{number}", *options) == 0
        labels = [
            part["label"] for part in record_of(tmp_path / f"out{number}")["models"][0]["encoders"]
        ]
        assert labels == ["member 1", "member 2, tower I", "member 2, tower II"]
    listing = json.loads((tmp_path / "mixed" / "modules.json").read_text())
    (tmp_path / "mixed" / "modules.json").write_text(
        json.dumps([listing[0] | {"type": "somebody.Else"}])
    )
    told = refusal(capsys, [tmp_path / "mixed"], pairs, tmp_path / "out")
    assert (
        told.endswith("if you trust that, add --trust-remote-code.")
        and not (tmp_path / "out").exists()
    )


def test_the_embedded_backbone_has_a_name(pairs, tmp_path):
    assert diagnose(["embedded"], pairs, tmp_path / "out") == 0
    (found,) = record_of(tmp_path / "out")["models"]
    assert (found["name"], found["dimension"], found["parameters"]) == ("embedded", 384, 22_713_216)
    assert [note.split(" (")[0] for note in found["notes"]] == [
        "Moduli: the pooler was never trained"
    ]


def broken(folder, source, value):
    shutil.copytree(source, folder)
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: weight * value for name, weight in weights.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    return folder


def refusal(capsys, models, pairs, output, *options):
    assert diagnose(models, pairs, output, *options) == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_a_model_without_numbers_is_named_and_nothing_is_written(models, pairs, tmp_path, capsys):
    faulty = broken(tmp_path / "faulty", models[0], float("nan"))
    told = refusal(capsys, [models[1], faulty], pairs, tmp_path / "out")
    assert (
        told.startswith("The weight 'embeddings.word_embeddings.weight' in")
        and "is not finite" in told
    )
    empty = broken(tmp_path / "empty", models[0], 0.0)
    told = refusal(capsys, [models[1], empty], pairs, tmp_path / "out")
    assert told.startswith("empty: 24 of 24 embeddings are zero or not finite")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "faulty"]


def test_a_folder_without_weights_is_named(models, pairs, tmp_path, capsys):
    empty = tmp_path / "empty"
    shutil.copytree(models[0], empty, ignore=shutil.ignore_patterns("*.safetensors"))
    assert f"{empty} holds a configuration but no weights" in refusal(
        capsys, [empty], pairs, tmp_path / "out"
    )
    (empty / "model.safetensors").write_bytes(b"not weights")
    assert f"The model '{empty}' cannot be loaded (" in refusal(
        capsys, [empty], pairs, tmp_path / "out"
    )


def test_what_can_be_refused_is_refused_before_a_model_is_loaded(models, pairs, tmp_path, capsys):
    out = tmp_path / "out"
    nowhere, text = tmp_path / "nowhere", tmp_path / "pairs.txt"
    text.write_text("a\tb\t1\n")
    assert (
        refusal(capsys, [nowhere], pairs, out)
        == f"The model '{nowhere}' is not a folder; check the path."
    )
    assert (
        refusal(capsys, models, nowhere, out)
        == f"--pairs: {nowhere} is not a file; check the path."
    )
    assert "pairs need columns, found a text file" in refusal(capsys, models, text, out)
    assert "is given twice; give each once." in refusal(capsys, [models[0]] * 2, pairs, out)
    assert "found 5 and 0" in refusal(capsys, models, pairs, out, "--score-range", "5", "0")
    told = refusal(capsys, models, pairs, out, "--score-range", "0", "4")
    assert told.startswith(
        f"{pairs}:12: the score 5 is outside 0 to 4; correct it or set score_range."
    )
    assert "--sentence: expected a sentence" in refusal(
        capsys, models, pairs, out, "--sentence", " "
    )
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    assert "is not empty; choose another folder." in refusal(capsys, models, pairs, out)
    assert [path.name for path in out.iterdir()] == ["mine.txt"]
