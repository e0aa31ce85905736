"""A batch's two views as the loss gets them, and training on them."""

import json
from types import SimpleNamespace

import pytest
import torch
from conftest import WORDS, make_encoder, make_sentences, make_tokenizer, save_encoder
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from st_jtcse.abilities.sentence_views.view_blocks import ViewSpec
from st_jtcse.abilities.sentence_views.view_collator import (
    TemplateViews,
    ViewCollator,
    take_cut_off,
)
from st_jtcse.cli.train import main
from st_jtcse.losses import SimCSELoss, SNCSELoss
from st_jtcse.losses.terms import Term
from st_jtcse.losses.views import encode_views
from st_jtcse.modules import load_sentence_transformer
from st_jtcse.training.callbacks import Interrupt

SENTENCES = [" ".join(WORDS[at : at + 10]) for at in range(8)]
ROWS = [{"sentence": text} for text in SENTENCES]
ALL = ("crop", "delete", "repeat", "neighbour", "shuffle", "mask", "token_cutoff", "feature_cutoff")
SOFT = {"type": "SNCSELoss", "margin_weight": 0.5}
QUEUE = {"type": "ESimCSELoss", "queue_size": 7, "momentum": 0.9}
READING = {"type": "DiffCSELoss", "reading_weight": 0.5}
PAD, CLS, SEP, MASK = 0, 2, 3, 4


def collator(model, first, second="dropout", **settings):
    views = [ViewSpec.model_validate({"type": name}) for name in (first, second)]
    return ViewCollator(model.preprocess, model=model, views=views, **settings)


def rows_of(batch, key="input_ids"):
    """The tokens of each view, without padding."""
    return [
        row[mask > 0].tolist()
        for row, mask in zip(batch[f"sentence_{key}"], batch["sentence_attention_mask"])
    ]


def test_the_shuffle_moves_words_alone_and_the_mask_hides_its_share(model):
    plain = [
        row["input_ids"] for row in map(dict, [model.preprocess([text]) for text in SENTENCES])
    ]
    moved = 0
    for ids, view in zip(plain, rows_of(collator(model, "shuffle")(ROWS))):
        ids = ids[0].tolist()
        assert view[0] == CLS and view[-1] == SEP and sorted(view) == sorted(ids)
        moved += view != ids
    assert moved == len(SENTENCES)
    for ids, view in zip(plain, rows_of(collator(model, "mask")(ROWS))):
        assert view.count(MASK) == round(0.15 * 10) and view[0] == CLS and view[-1] == SEP
        assert [token for token in view if token != MASK] == [
            t for t, v in zip(ids[0].tolist(), view) if v != MASK
        ]


def test_a_prompt_stays_before_what_a_view_makes(model):
    batch = collator(model, "shuffle", "mask", prompts="the one two ")(ROWS)
    prompt = model.preprocess(["the one two"])["input_ids"][0, 1:-1].tolist()
    assert all(row[1:4] == prompt for row in rows_of(batch)) and any(
        MASK in row for row in rows_of(batch)
    )


@pytest.mark.parametrize("name", ["token_cutoff", "feature_cutoff"])
def test_a_cutoff_hides_its_share_of_tokens_or_components(model, name):
    kept = collator(model, name)(ROWS)["sentence_kept_components"]
    cut, whole = kept.chunk(2)
    assert whole.all() and cut[:, 0].all() and cut[:, 11:].all()
    hidden = ~cut[:, 1:11]
    if name == "token_cutoff":
        assert (hidden.all(dim=2).sum(dim=1) == round(0.15 * 10)).all() and torch.equal(
            hidden.any(2), hidden.all(2)
        )
    else:
        assert (hidden.all(dim=1).sum(dim=1) == round(0.2 * 32)).all() and torch.equal(
            hidden.any(1), hidden.all(1)
        )


@pytest.mark.parametrize("name", ["crop", "repeat", "shuffle", "mask", "feature_cutoff"])
def test_a_view_follows_from_seed_epoch_and_sentence_alone(model, name):
    key = "kept_components" if name == "feature_cutoff" else "input_ids"

    def views(rows, seed=1, epoch=0):
        made = collator(model, name, name, seed=seed)
        made.on_epoch_begin(None, SimpleNamespace(epoch=epoch), None)
        return rows_of(made(rows), key)

    whole = views(ROWS)
    halves = views(ROWS[:3]), views(ROWS[3:])
    assert whole == halves[0][:3] + halves[1][:5] + halves[0][3:] + halves[1][5:]
    assert views(ROWS, epoch=0.9) == whole
    assert (
        whole[:8] != whole[8:] and views(ROWS, seed=2) != whole and views(ROWS, epoch=1.5) != whole
    )


class Product(Term):
    """A term that keeps the views that it is called with."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __call__(self, batch):
        self.seen.extend(batch.views)
        return (batch.views[0] * batch.views[1]).sum()


@pytest.mark.parametrize("name", ALL)
def test_two_views_differ_without_dropout_and_gradients_flow(model_folders, name):
    model = SentenceTransformer(str(model_folders[0]), device="cpu").eval()
    if name.endswith("_cutoff"):
        take_cut_off(model)
    rows = [row | {"neighbour": text} for row, text in zip(ROWS, SENTENCES[::-1])]
    batch = collator(model, name)(rows)
    features = {key.removeprefix("sentence_"): value for key, value in batch.items()}
    seen = []
    loss = SimCSELoss(model)
    loss.length_chunks = 3
    loss.terms = {"nce": Product(seen)}
    loss([features]).backward()
    differ = (seen[0] - seen[1]).abs().amax(dim=1) > 1e-4
    assert differ.sum() >= 5 if name == "repeat" else differ.all()  # ESimCSE's may repeat no word.
    with torch.no_grad():  # The views of dropout are the sentences themselves.
        torch.testing.assert_close(
            seen[1], model(model.preprocess(SENTENCES))["sentence_embedding"]
        )
    assert all(
        weight.grad.abs().max() > 0
        for weight in model[0].model.encoder.parameters()
        if weight.dim() > 1
    )


@pytest.fixture
def project(tmp_path):
    save_encoder(
        tmp_path / "a",
        1,
        num_hidden_layers=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    (tmp_path / "text.txt").write_text("\n".join([*make_sentences(15), "dog"]) + "\n")
    return tmp_path


def write(project, views, loss="SimCSELoss", **more):
    args = {
        "max_steps": 6,
        "per_device_train_batch_size": 8,
        "use_cpu": True,
        "disable_tqdm": True,
        "save_steps": 1,
    }
    model = {"base": "./a", "pooling": "cls"}
    stage = {
        "name": "one",
        "model": model,
        "loss": {"type": loss} if loss else None,
        "views": views,
        **more,
    }
    stage["loss"] = loss if isinstance(loss, dict) else stage["loss"]
    recipe = {"name": "tiny", "args": args, "data": {"train": "text.txt"}, "stages": [stage]}
    (project / "recipe.yaml").write_text(json.dumps(recipe))


def run(project, folder, *options):
    status = main([str(project / "recipe.yaml"), "--output-dir", str(project / folder), *options])
    found = project / folder / "results.json"
    stages = json.loads(found.read_text())["stages"] if found.is_file() else []
    return status, next(iter(stages), None)


@pytest.mark.parametrize("loss", [QUEUE, READING], ids=["queue", "reading"])
def test_a_resumed_run_sees_the_same_views_past_and_reader(project, capsys, monkeypatch, loss):
    """Without dropout views, and queue or reader, alone make the weights; the stop is in the third
    of three epochs.
    """
    write(project, "crop", loss)
    _, straight = run(project, "straight")
    assert (
        straight["kept_whole"] == 1
        and "one: 1 sentences of one word are kept whole" in capsys.readouterr().err
    )
    with monkeypatch.context() as patch:
        ends = Interrupt.on_step_end

        def stop(self, args, state, control, **more):
            self.requested = state.global_step >= 5
            ends(self, args, state, control, **more)

        patch.setattr(Interrupt, "on_step_end", stop)
        assert run(project, "stopped")[0] == 130
    _, resumed = run(project, "stopped", "--resume")
    assert resumed["steps"] == 6 and resumed["weights_sha256"] == straight["weights_sha256"]
    assert (project / "stopped" / "one" / "model.safetensors").read_bytes() == (
        project / "straight" / "one" / "model.safetensors"
    ).read_bytes()
    if loss is READING:  # The saved model is the encoder that it was.
        kept = [
            load_file(project / name / "model.safetensors").keys() for name in ("a", "straight/one")
        ]
        assert kept[0] == kept[1] and not [*(project / "straight" / "one").glob("loss*")]
    write(project, ["crop", "dropout"], loss)
    assert run(project, "other")[1]["weights_sha256"] != straight["weights_sha256"]


def test_the_third_view_is_the_soft_negative_of_the_other_two(project, model):
    write(project, ["dropout", "crop", "negate"], SOFT, args={"logging_steps": 1})
    status, record = run(project, "run")
    assert status == 0 and {"nce", "soft_negatives"} <= record["log"][0].keys()
    collate = ViewCollator(
        model.preprocess, model=model, views=[ViewSpec(type=name) for name in ("dropout",) * 3]
    )
    batch = {key.removeprefix("sentence_"): value for key, value in collate(ROWS).items()}
    loss = SNCSELoss(model.eval(), margin_weight=0.5, least_gap=0.25, most_gap=0.75)
    found = loss(
        [batch]
    )  # Of three equal views, without dropout: the gap is 0 and the least of it is missing.
    assert found["soft_negatives"].item() == pytest.approx(0.5 * 0.25, abs=1e-6)
    torch.testing.assert_close(
        found["nce"], SimCSELoss(model)([model.preprocess(SENTENCES)]), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("loss", ["MultipleNegativesRankingLoss", "DenoisingAutoEncoderLoss"])
def test_a_loss_of_two_columns_gets_a_view_in_each(project, model, loss):
    write(project, ["delete", "token_cutoff"], loss)
    status, record = run(project, "run")
    assert status == 0 and record["steps"] == 6
    batch = collator(model, "delete", "dropout", in_one=False)(
        [row | {"label": 1.0} for row in ROWS]
    )
    assert batch["sentence_input_ids"].shape[0] == batch["view_b_input_ids"].shape[0] == len(ROWS)
    assert [len(row) for row in rows_of(batch)] == [6] * 8 and (
        batch["view_b_attention_mask"].sum(1) == 12
    ).all()
    assert batch["label"].tolist() == [1.0] * 8


@pytest.mark.parametrize(
    ("views", "more", "message"),
    [
        (
            "neighbour",
            {},
            "the view 'neighbour' needs blank lines between documents, found none in the training "
            "text",
        ),
        (
            "mask",
            {"mask_token": None},
            "the view 'mask' needs a mask token in the model's vocabulary, found none",
        ),
        (
            "template",
            {"mask_token": None, "model": {"base": "./a", "template": "the [X] reads [MASK]"}},
            "needs a mask token in the vocabulary of a fast tokenizer, found none",
        ),
        (
            "dropout",
            {},
            "it has no active dropout. Give its model 'dropout: 0.1', or views that differ in "
            "another way",
        ),
        ("crob", {}, "Did you mean 'crop'?"),
        (
            [{"type": "shuffle", "share": 0.5}],
            {},
            "expected no 'share' beside 'shuffle', found 0.5. Remove 'share'.",
        ),
        (["crop"] * 4, {}, "stages[0].views: expected a list of at most 3"),
        (
            ["crop"] * 3,
            {},
            "stages[0].views: expected one view or two for SimCSELoss, found 3. Remove one, or "
            "choose one of: ArcCSELoss, SNCSELoss.",
        ),
        (
            "crop",
            {"loss": SOFT},
            "stages[0].views: expected three views for SNCSELoss, found 1. Add one, such as 'views: "
            "[dropout, dropout, negate]'.",
        ),
        (
            ["crop"] * 2,
            {"loss": {"type": "ArcCSELoss", "triplet_weight": 0.1}},
            "stages[0].views: expected three views for ArcCSELoss, found 2.",
        ),
        (
            "crop",
            {"loss": "MSELoss"},
            "expected a loss that compares two views of a sentence, found MSE",
        ),
        (
            "crop",
            {"loss": QUEUE | {"queue_size": 9}},
            "loss.queue_size is 9, too many beside batches of 8 for 16 training sentences, which "
            "would be negatives of "
            "themselves; lower it to 8 at most, or add sentences.",
        ),
        (
            "crop",
            {"loss": {"type": "WhitenedCSELoss", "whitening_groups": 5}},
            "whitening_groups: expected a divisor of the embedding's size, 32, found 5. Choose "
            "another.",
        ),
        (
            "crop",
            {"loss": {"type": "ESimCSELoss"}},
            "loss.queue_size is 160, too many beside batches of 8 for 16 training sentences",
        ),
        (
            "crop",
            {"loss": {"type": "ISCSELoss", "queue_size": 8}},
            "loss.neighbours: expected fewer than 'queue_size', 8, found 16. Lower it.",
        ),
        (
            "crop",
            {"loss": {"type": "SimCSELoss", "momentum": 0.9}},
            "loss.momentum: expected an argument of SimCSELoss, found 'momentum', which it had in "
            "an earlier version. Choose ESimCSELoss.",
        ),
        (
            "crop",
            {"loss": QUEUE | {"matryoshka_dims": [32, 8]}},
            "loss.matryoshka_dims: expected a loss that takes embeddings of any size, found "
            "ESimCSELoss",
        ),
        ("crop", {"loss": None}, "expected a loss beside 'views', found null."),
        (
            "crop",
            {"augment": {"pivots": ["fr"], "mode": "pair"}},
            "expected the sentences themselves beside 'views', found 'augment'.",
        ),
    ],
    ids=str,
)
def test_views_that_cannot_be_are_refused_in_a_sentence(project, capsys, views, more, message):
    if "mask_token" in more:
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            if (project / "a" / name).is_file():
                settings = json.loads((project / "a" / name).read_text())
                settings.pop("mask_token", None)
                (project / "a" / name).write_text(json.dumps(settings))
    write(project, views, **{key: value for key, value in more.items() if key != "mask_token"})
    status, _ = run(project, "run")
    assert status == 2 and message in capsys.readouterr().err and not (project / "run").exists()


TEMPLATES = [{"type": "template"}, {"type": "template", "text": "a [X] sleeps near [MASK]"}]


def test_templates_are_read_in_pairs_and_their_biases_subtracted(tower_folders):
    """By hand: the mask token's state, less that of the same tokens of which the sentence's are
    hidden.
    """
    model = load_sentence_transformer(
        tower_folders[0], template="the book [X] reads [MASK] in", device="cpu"
    ).eval()
    views = [ViewSpec.model_validate(view) for view in TEMPLATES]
    collate = ViewCollator(
        model.preprocess,
        model=model,
        views=views,
        templates=TemplateViews(model, views, "sentence"),
    )
    texts = [SENTENCES[0], "dog"]
    batch = collate([{"sentence": text} for text in texts])
    features = {key.removeprefix("sentence_"): value for key, value in batch.items()}
    found = encode_views(model, features, 3)["sentence_embedding"]
    tokenizer, encoder = make_tokenizer(), make_encoder(1)
    expected = []
    for before, after in (("the book", "reads [MASK] in"), ("a", "sleeps near [MASK]")):
        for text in texts:
            ids = tokenizer(f"{before} {text} {after}", return_tensors="pt")["input_ids"]
            hidden = torch.ones_like(ids)
            start = 1 + len(before.split())
            hidden[0, start : start + len(text.split())] = 0
            with torch.inference_mode():
                at = ids[0].tolist().index(MASK)
                states = [
                    encoder(ids, attention_mask=seen).last_hidden_state[0, at]
                    for seen in (hidden * 0 + 1, hidden)
                ]
            expected.append(states[0] - states[1])
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-4, atol=1e-4)
    own = model.preprocess(["dog"])["input_ids"][0].tolist()
    assert own == tokenizer("the book dog reads [MASK] in")["input_ids"]


def test_a_stage_trains_on_templates_and_refuses_them_where_they_cannot_be(project, capsys):
    model = {"base": "./a", "template": "the book [X] reads [MASK] in"}
    write(project, TEMPLATES, model=model)
    status, record = run(project, "run")
    assert status == 0 and record["steps"] == 6
    saved = SentenceTransformer(str(project / "run" / "one"), device="cpu")
    assert (
        saved.tokenizer.decode(saved.preprocess(["dog"])["input_ids"][0])
        == "[CLS] the book dog reads [MASK] in [SEP]"
    )
    capsys.readouterr()
    refused = [
        (
            dict(views=TEMPLATES),
            "needs a model that reads every text within one, found another; say model.template.",
        ),
        (
            dict(views=["template", "crop"], model=model),
            "the view 'template' goes with its like alone",
        ),
        (
            dict(views="template", model=model | {"pooling": "cls"}),
            "expected no 'pooling' beside 'template', found 'cls'",
        ),
        (
            dict(views=[{"type": "crop", "text": "x"}]),
            "expected no 'text' beside 'crop', found one.",
        ),
    ]
    for given, message in refused:
        write(project, **given)
        assert run(project, "other")[0] == 2 and message in " ".join(
            capsys.readouterr().err.split()
        )
