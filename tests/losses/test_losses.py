import copy
import sys
from pathlib import Path

import pytest
import torch
from conftest import make_model, make_pipeline, make_sentences
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling

import st_jtcse.losses as losses
from st_jtcse.errors import UserError
from st_jtcse.losses import JTCSELoss, SimCSELoss, catalogue
from st_jtcse.losses.functional import interaction_nt_xent, interaction_tensor_modulus, nt_xent
from st_jtcse.losses.views import BOTH_VIEWS, encode_views
from st_jtcse.modules import PoolerModulusHead
from st_jtcse.papers import losses as of_papers
from st_jtcse.recipe.named_arguments import build_loss
from st_jtcse.recipe.schema import LossSpec
from st_jtcse.signatures import arguments_of

EVERY = [*losses.__all__, *of_papers.__all__]
SENTENCES = make_sentences(7)


@pytest.fixture(scope="module")
def twin(tower_folders):
    return make_pipeline(tower_folders)


@pytest.fixture(scope="module")
def single(tower_folders):
    encoder = Transformer(str(tower_folders[0]))
    return SentenceTransformer(
        modules=[encoder, PoolerModulusHead(), Pooling(32, "cls")], device="cpu"
    )


def no_dropout(model):
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.train()


def features(model, sentences=SENTENCES):
    return [model.preprocess(sentences)]


def test_terms_are_the_functions_of_the_towers_outputs(twin):
    model = no_dropout(twin)
    loss = JTCSELoss(
        model,
        direction="1_to_2",
        nce_weight=2.0,
        icnce_weight=3.0,
        cross_weight=5.0,
        ictm_weight=0.5,
    )
    terms = loss(features(model))
    out = model({**model.preprocess(SENTENCES), "tower_outputs": True})
    (h_1, h_2), (c_1, c_2), (p_1, p_2) = (
        out[k].unbind(1) for k in ("tower_embedding", "cross_embedding", "tower_pooler")
    )
    expected = {
        "nce": 2 * (nt_xent(h_1, h_1) + nt_xent(h_2, h_2)),
        "icnce": 3 * interaction_nt_xent(h_1, h_1, h_2, h_2),
        "icnce_cross": 5 * interaction_nt_xent(c_1, c_1, c_2, c_2),
        "ictm": 0.5 * interaction_tensor_modulus(h_1, h_1, h_2, h_2, p_1, p_1, p_2, p_2),
    }
    assert terms.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_the_two_views_differ_by_dropout(twin):
    model = copy.deepcopy(twin).train()
    torch.manual_seed(0)
    with_dropout = JTCSELoss(model)(features(model))["nce"].item()
    without = JTCSELoss(no_dropout(twin))(features(twin))["nce"].item()
    assert abs(with_dropout - without) > 1e-3


@pytest.mark.parametrize(
    ("off", "left"),
    [
        (dict(nce_weight=0), {"icnce", "icnce_cross", "ictm"}),
        (dict(icnce_weight=0), {"nce", "icnce_cross", "ictm"}),
        (dict(cross_weight=0), {"nce", "icnce", "ictm"}),
        (dict(ictm_weight=0), {"nce", "icnce", "icnce_cross"}),
        (dict(icnce_weight=0, cross_weight=0, ictm_weight=0), {"nce"}),
    ],
)
def test_a_weight_of_zero_switches_its_term_off(twin, off, left):
    assert JTCSELoss(twin, **off)(features(twin)).keys() == left


@pytest.mark.parametrize("chunks", [2, 4])
def test_length_chunks_change_neither_loss_nor_gradient(twin, chunks):
    results = []
    for length_chunks in (1, chunks):
        model = no_dropout(twin)
        loss = JTCSELoss(model)
        loss.length_chunks = length_chunks
        terms = loss(features(model))
        sum(terms.values()).backward()
        results.append(
            (terms, model[0].model.towers[0].encoder.layer[0].intermediate.dense.weight.grad)
        )
    for name, value in results[0][0].items():
        torch.testing.assert_close(results[1][0][name], value, rtol=1e-4, atol=1e-5, msg=name)
    torch.testing.assert_close(results[1][1], results[0][1], rtol=1e-3, atol=1e-5)


def test_direction_is_a_fair_seeded_draw_that_depends_on_the_batch_alone(twin):
    loss = JTCSELoss(twin, seed=5)
    batches = [twin.preprocess(make_sentences(4, seed=index)) for index in range(200)]
    draws = [loss.order.draw(batch) for batch in batches]
    assert draws == [loss.order.draw(batch) for batch in batches]
    assert 70 < sum(draw == (1, 0) for draw in draws) < 130
    assert draws != [JTCSELoss(twin, seed=6).order.draw(batch) for batch in batches]
    assert {JTCSELoss(twin, direction="1_to_2").order.draw(batch) for batch in batches} == {(0, 1)}


def test_reversed_direction_swaps_queries_and_candidates(twin, monkeypatch):
    model = no_dropout(twin)
    loss = JTCSELoss(model)
    values = {}
    for order in ((0, 1), (1, 0)):
        monkeypatch.setattr(loss.order, "draw", lambda features, order=order: order)
        values[order] = loss(features(model))["icnce"].item()
    out = model({**model.preprocess(SENTENCES), "tower_outputs": True})
    h_1, h_2 = out["tower_embedding"].unbind(1)
    assert values[1, 0] == pytest.approx(interaction_nt_xent(h_2, h_2, h_1, h_1).item(), rel=1e-4)
    assert values[0, 1] != pytest.approx(values[1, 0], rel=1e-4)


def test_a_single_tower_trains_on_nce_and_the_modulus_of_its_own_views(single):
    model = copy.deepcopy(single).train()
    torch.manual_seed(0)
    terms = JTCSELoss(model, icnce_weight=0, cross_weight=0)(features(model))
    assert terms.keys() == {"nce", "ictm"} and terms["ictm"].item() > 0
    terms["ictm"].backward()
    assert model[0].model.pooler.dense.weight.grad.abs().max() > 0
    assert (
        JTCSELoss(no_dropout(single), icnce_weight=0, cross_weight=0)(features(single))[
            "ictm"
        ].item()
        < 1e-5
    )


def test_a_single_tower_without_the_modulus_term_is_nt_xent_of_its_embeddings(single):
    model = no_dropout(
        SentenceTransformer(modules=[single[0], single[2]], device="cpu")
    )  # Without the poolers' head
    terms = JTCSELoss(model, icnce_weight=0, cross_weight=0, ictm_weight=0)(features(model))
    embeddings = model(model.preprocess(SENTENCES))["sentence_embedding"]
    torch.testing.assert_close(
        dict(terms), {"nce": nt_xent(embeddings, embeddings)}, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            dict(),
            "icnce_weight and cross_weight need two towers, but the model's first module is a "
            "Transformer",
        ),
        (
            dict(icnce_weight=0, cross_weight=0, nce_weight=0, ictm_weight=0),
            "expected one weight above 0, found 0 for nce",
        ),
        (
            dict(icnce_weight=0, cross_weight=0, nce_weight=-1.0),
            "nce_weight: expected a number of at least 0, found -1",
        ),
        (
            dict(icnce_weight=0, cross_weight=0, temperature=0.0),
            "temperature: expected a number above 0, found 0.0",
        ),
        (
            dict(icnce_weight=0, cross_weight=0, direction="2_to_1"),
            "direction: expected one of 'random', '1_to_2', found",
        ),
    ],
)
def test_degenerate_settings_are_refused_at_construction(single, settings, message):
    with pytest.raises(UserError, match=message):
        JTCSELoss(single, **settings)


def test_missing_parts_of_the_model_are_named(tower_folders):
    no_cross = make_pipeline(tower_folders, every=None)
    with pytest.raises(UserError, match="cross_weight needs a twin with cross-attention"):
        JTCSELoss(no_cross)
    assert JTCSELoss(no_cross, cross_weight=0)(features(no_cross)).keys() == {
        "nce",
        "icnce",
        "ictm",
    }
    no_head = SentenceTransformer(modules=[no_cross[0], no_cross[2]], device="cpu")
    with pytest.raises(UserError, match="add a PoolerModulusHead"):
        JTCSELoss(no_head, cross_weight=0)


@pytest.mark.parametrize("loss", [JTCSELoss, SimCSELoss])
def test_two_columns_are_refused_with_the_way_out(twin, loss):
    with pytest.raises(
        UserError, match="found 2 text columns; keep one column, or train on pairs with Multiple"
    ):
        loss(twin)(features(twin) * 2)


def test_simcse_is_multiple_negatives_ranking_of_the_two_views(single):
    model = no_dropout(single)
    expected = MultipleNegativesRankingLoss(model)(features(model) * 2, None)
    torch.testing.assert_close(SimCSELoss(model)(features(model)), expected, rtol=1e-4, atol=1e-5)


def test_simcse_with_both_views_is_nt_xent(single):
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(6, 32, dtype=torch.float64, generator=generator) for _ in range(2))
    loss = SimCSELoss(single, candidates="both_views", temperature=0.1)
    torch.testing.assert_close(loss.compute_loss_from_embeddings([a, b]), nt_xent(a, b, 0.1))


@pytest.mark.parametrize(
    "settings", [dict(temperature=0), dict(temperature=float("inf")), dict(candidates="all")]
)
def test_simcse_refuses_degenerate_settings(single, settings):
    with pytest.raises(UserError, match=next(iter(settings))):
        SimCSELoss(single, **settings)


@pytest.mark.parametrize("name", [name for name in EVERY if not name.startswith("CrossEncoder")])
def test_config_rebuilds_the_loss_and_cites_its_paper(twin, tower_folders, name):
    kind = getattr(losses, name)
    model = twin if kind.declaration.twin else make_model(tower_folders[0])
    groups = {"whitening_groups": 8} if name == "WhitenedCSELoss" else {}
    original = kind(model, temperature=0.07, **groups)
    rebuilt = kind(model, **original.get_config_dict())
    assert rebuilt.get_config_dict() == original.get_config_dict()
    assert original.get_config_dict()["temperature"] == pytest.approx(0.07)
    assert original.citation.strip().startswith(("@inproceedings{", "@article{", "@misc{"))
    batch = features(model)
    if kind.declaration.third_view is True:
        batch = [{**model.preprocess(SENTENCES * 3), BOTH_VIEWS: True}]
    torch.manual_seed(0)
    # Only a loss with teachers reads the labels.
    value = original(batch, torch.randn(len(SENTENCES), 4))
    total = sum(value.values()) if isinstance(value, dict) else value
    total.backward()
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())
    model.zero_grad()


def test_no_loss_has_more_arguments_than_a_reader_holds():
    counts = {name: len(arguments_of(getattr(losses, name).__init__)) for name in EVERY}
    assert max(counts.values()) == counts["LSRNSLoss"] == 11
    assert counts["SimCSELoss"] == 5 and counts["JTCSELoss"] == 10


@pytest.fixture
def other_file(monkeypatch, tmp_path):
    """A folder whose files are of the losses', with one file in it."""
    text = Path(losses.__path__[0], "simcse.py").read_text()
    (tmp_path / "other.py").write_text(text.replace("SimCSELoss", "OtherLoss"))
    monkeypatch.setattr(losses, "__path__", [*losses.__path__, str(tmp_path)])
    catalogue._losses_here.cache_clear()
    yield
    catalogue._losses_here.cache_clear()
    del sys.modules["st_jtcse.losses.other"]


def test_a_loss_is_found_by_its_file_alone(other_file, single):
    assert "OtherLoss" in losses.__all__ and "OtherLoss" in catalogue.loss_names()
    assert losses.OtherLoss.__module__ == "st_jtcse.losses.other"
    built = build_loss(LossSpec(type="OtherLoss", temperature=0.1), single)
    assert isinstance(built, losses.OtherLoss) and built(features(single)).item() > 0
    for name in ("NoLoss", "no_module"):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
            getattr(losses, name)


def test_length_chunks_leave_left_padding_whole(tower_folders):
    model = make_model(tower_folders[0])
    model.tokenizer.padding_side = "left"
    model.eval()
    batch = model.preprocess(
        ["the dog runs", "a man in the big red house reads one old book slowly"]
    )
    assert batch["attention_mask"][0, 0] == 0
    whole = encode_views(model, dict(batch), 1)["sentence_embedding"]
    torch.testing.assert_close(
        encode_views(model, dict(batch), 4)["sentence_embedding"], whole, atol=1e-6, rtol=0
    )
