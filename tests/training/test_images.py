"""Images in the place of sentences: a recipe trains on a folder of them, and a linear classifier
tells what it did.
"""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from sentence_transformers import SentenceTransformer
from transformers import ResNetConfig, ResNetModel, ViTConfig, ViTModel
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from st_jtcse.cli.train import main
from st_jtcse.data import Source, load_sentences
from st_jtcse.errors import UserError
from st_jtcse.evaluation import load_own_set


def texture(kind, rng):
    """Stripes across, stripes down, a chequered board or a grid, of any size, place and two greys,
    with noise.
    """
    width, (down, across) = rng.integers(2, 5), rng.integers(0, 8, 2)
    y, x = (np.mgrid[:32, :32] + np.array([[[down]], [[across]]])) // width
    pattern = [x % 2, y % 2, (x + y) % 2, (x % 2) * (y % 2)][kind]
    greys = rng.permutation([rng.uniform(0.0, 0.4), rng.uniform(0.6, 1.0)])
    noisy = greys[pattern][..., None] + rng.normal(0, 0.05, (32, 32, 3))
    return Image.fromarray((255 * noisy.clip(0, 1)).astype(np.uint8))


def textures(count, seed):
    rng = np.random.default_rng(seed)
    kinds = np.arange(count) % 4
    return [texture(kind, rng) for kind in kinds], kinds


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A tower of two small layers, textures to train on, and others in folders by their kind."""
    folder = tmp_path_factory.mktemp("images")
    torch.manual_seed(0)
    config = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic"
    )
    ResNetModel(config).save_pretrained(folder / "tower")
    ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder / "tower")
    for part, count, seed in (("train", 256, 0), ("test", 200, 1)):
        for number, (image, kind) in enumerate(zip(*textures(count, seed))):
            place = folder / part / (f"kind {kind}" if part == "test" else "")
            place.mkdir(parents=True, exist_ok=True)
            image.save(place / f"{number:03}.png")
    return folder


def settings(world, folder, **changes):
    """The command that runs the recipe of STL-10 on these."""
    given = {
        "model.base": world / "tower",
        "data.train": world / "train",
        "evaluate.test.stl10": world / "test",
        "cache_dir": folder / "cache",
        "args.max_steps": 20,
        "args.per_device_train_batch_size": 64,
        "args.learning_rate": "2e-3",
        "args.lr_scheduler_type": "constant",
        "args.bf16": "false",
        "args.dataloader_num_workers": 0,
        "args.save_strategy": "no",
        "args.use_cpu": "true",
    } | changes
    options = [part for key, value in given.items() for part in ("--set", f"{key}={value}")]
    return ["lsrns-stl10-resnet18", "--output-dir", str(folder / "run"), *options]


def test_simclr_and_lsrns_beat_the_untrained_tower(world, tmp_path, capsys):
    assert main(settings(world, tmp_path)) == 0
    assert '.encode(["photo.jpg"])' in capsys.readouterr().out
    stages = json.loads((tmp_path / "run" / "results.json").read_text())["stages"]
    assert [stage["metrics"] for stage in stages] == [{"stl10": "linear_accuracy"}] * 2
    for stage in stages:
        assert stage["spearman_start"]["stl10"] < 80 < 90 < stage["spearman"]["stl10"], stage[
            "name"
        ]
    model = SentenceTransformer(str(tmp_path / "run" / "student"), device="cpu")
    assert model.encode([Image.open(world / "train" / "000.png")]).shape == (1, 32)
    card = (tmp_path / "run" / "student" / "README.md").read_text()
    assert "Every image is cropped" in card and "pipeline_tag: image-feature-extraction" in card
    assert "dropout, and" not in card and "assets/" not in card and "AutoTokenizer" not in card


def test_a_vision_transformer_goes_too(world, tmp_path, capsys):
    shape = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    ViTModel(ViTConfig(**shape, image_size=32, patch_size=8)).save_pretrained(tmp_path / "vit")
    ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "vit")
    # What is on the Hub is not read for a rehearsal.
    changes = {
        "model.base": tmp_path / "vit",
        "data.train": "{dataset: nobody/nothing, split: unlabeled}",
    }
    _, *options = settings(world, tmp_path, **changes)
    assert main(["lsrns-stl10-vit", *options, "--dry-run"]) == 0
    assert (
        "vit: CLS state (pooling: cls), a plain encoder, random weights" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"stages.simclr.views": "crop"},
            "Stage 'simclr': 'views' is for text, and it trains on images; remove it.",
        ),
        (
            {"model.max_seq_length": 32},
            "'model.max_seq_length' is for text, and it trains on images",
        ),
        ({"evaluate.dev": "unlabelled"}, "'evaluate.dev: unlabelled' is for text"),
        ({"evaluate.test.faq": "faq.jsonl"}, "'the set faq' is for text, and it trains on images"),
        (
            {"data.train": "words.txt"},
            "the training data are texts, which a resnet model does not read",
        ),
        (
            {"evaluate.test.stl10": "flat"},
            "0.png: the image has no label; fill it, or put the image into a folder of",
        ),
        ({"data.train": "torn"}, "torn.png: the image cannot be read (image file is truncated"),
    ],
)
def test_what_does_not_go_with_images_is_told(world, tmp_path, monkeypatch, capsys, changes, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("a dog runs\n" * 64)
    rows = ({"query": f"what {word}", "relevant": f"the {word}"} for word in ("dog", "cat"))
    (tmp_path / "faq.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    picture = (world / "train" / "000.png").read_bytes()
    for name, content in (
        ("flat/0.png", picture),
        ("torn/a.png", picture),
        ("torn/torn.png", picture[:-900]),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert main(settings(world, tmp_path, **changes)) == 2
    err = capsys.readouterr().err
    assert told in err and "Traceback" not in err and not (tmp_path / "run").exists()


def png(grey):
    file = io.BytesIO()
    Image.new("L", (4, 4), grey).save(file, "png")
    return {"bytes": file.getvalue(), "path": None}


def test_images_of_a_data_set_are_those_of_its_rows(tmp_path, model):
    for name, kinds in (("train", 2), ("test", 3)):
        labels = [number % kinds for number in range(18)]
        rows = pa.table({"image": [png(80 * label) for label in labels], "label": labels})
        (tmp_path / "data").mkdir(exist_ok=True)
        pq.write_table(rows, tmp_path / "data" / f"{name}.parquet")
    found = load_sentences([Source(dataset=str(tmp_path / "data"), limit=3)])
    assert found.modality == "image" and [
        np.asarray(image).max() for image in found.dataset["sentence"]
    ] == [0, 80, 0]
    assert found.dataset["sentence"][0].mode == "RGB"
    # Fitted on two kinds, a classifier knows two thirds of three; fitted on all in turn, all of
    # them.
    fitted = Source(dataset=str(tmp_path / "data"), split="test", fit_split="train")
    for source, score in ((fitted, 2 / 3), (Source(tmp_path / "data" / "test.parquet"), 1.0)):
        own = load_own_set(source, "greys")
        vectors = [
            np.array([[np.asarray(image).mean()] for image in column]) for column in own.columns
        ]
        with pytest.raises(UserError, match="one of images, which the model does not read"):
            own.statistic(model)
        assert own.items == 18 and own.score(own.measure(*vectors)) == pytest.approx(score)


def test_labels_too_few_for_a_classifier_are_told(tmp_path):
    rows = pa.table({"image": [png(label) for label in range(7)], "label": [0] * 6 + [1]})
    pq.write_table(rows, tmp_path / "few.parquet")
    with pytest.raises(
        UserError, match="needs 5 images of two labels or more, found 2 labels, of the rarest 1"
    ):
        load_own_set(Source(tmp_path / "few.parquet"), "few")
