"""Trained weights are mixed with the start's until general sets keep what the recipe asks for."""

import json

import pytest
import torch
from conftest import make_sentences, make_tokenizer, save_encoder
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from test_run import project, refusal, results, train  # noqa: F401  # project is a fixture

from st_jtcse.evaluation.measured_sets import OwnSet
from st_jtcse.evaluation.own_sets import OwnSetEvaluator
from st_jtcse.recipe.data_blocks import EvaluateSpec
from st_jtcse.recipe.schema import ModelSpec
from st_jtcse.training.limits import limits_of
from st_jtcse.training.model_kinds import kind_of
from st_jtcse.training.stage_inputs import Inputs
from st_jtcse.training.stage_saving import keep_general

GENERAL = [
    "--stage",
    "encoder",
    "--set",
    "evaluate={general: {everyday: everyday.jsonl}, retention: 2.0}",
]
NO_DEV = [
    "--set",
    "args.eval_strategy=no",
    "--set",
    "args.max_steps=4",
    "--set",
    "args.lr_scheduler_type=constant",
]


@pytest.fixture
def general(project, monkeypatch):  # noqa: F811
    """The project with pairs whose scores are the start's own cosines, so that every change loses."""
    monkeypatch.chdir(project)
    save_encoder(project / "a", 1)
    from st_jtcse.modules import load_sentence_transformer

    start = load_sentence_transformer(project / "a", pooling="cls")
    left, right = make_sentences(40, seed=8), make_sentences(40, seed=9)
    cosines = start.similarity_pairwise(start.encode(left), start.encode(right)).tolist()
    rows = [
        {"sentence1": a, "sentence2": b, "score": 2 + 2 * c}
        for a, b, c in zip(left, right, cosines)
    ]
    (project / "everyday.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return project


@pytest.mark.usefixtures("unrehearsed")
def test_the_largest_share_within_the_bound_is_taken(general, capsys):
    free = [*GENERAL[:2], "--set", "evaluate={general: {everyday: everyday.jsonl}}"]
    assert train(general, *free, *NO_DEV, "--output-dir", str(general / "free")) == 0
    assert train(general, *GENERAL, *NO_DEV) == 0
    unbound, bound = (results(general, folder)["stages"][0] for folder in ("free", "run"))
    assert bound["spearman_start"]["everyday"] == pytest.approx(100, abs=0.01)
    assert 100 - unbound["spearman"]["everyday"] > 2 >= 100 - bound["spearman"]["everyday"]
    share = bound["trained_share"]
    assert share in (0.8, 0.6, 0.4, 0.2) and "trained_share" not in unbound
    start, trained, mixed = (
        load_file(general / name / "model.safetensors")
        for name in ("a", "free/encoder", "run/encoder")
    )
    for name, value in mixed.items():
        by_hand = (1 - share) * start[name].double() + share * trained[name].double()
        assert torch.allclose(value.double(), by_hand, atol=1e-6), name


def test_a_bound_that_nothing_meets_keeps_the_start_and_says_so(general, capsys, caplog):
    assert (
        train(
            general,
            *GENERAL,
            *NO_DEV,
            "--set",
            "evaluate.retention=0.0",
            "--set",
            "args.learning_rate=0.1",
        )
        == 0
    )
    found = results(general)["stages"][0]
    assert found["trained_share"] == found["best_step"] == 0
    assert found["spearman"] == found["spearman_start"]
    assert "start kept" in capsys.readouterr().out
    assert any(
        "so the stage keeps the model it started from" in message for message in caplog.messages
    )


def test_a_mixture_below_the_start_on_dev_is_not_taken():
    """A mixture halves what both models have, and so leaves the start's side of `everyday` where
    dev is lost.
    """
    tokenizer = make_tokenizer().backend_tokenizer
    ids = [tokenizer.encode(word, add_special_tokens=False).ids[0] for word in ("dog", "cat")]

    def model(side):
        weights = torch.zeros(tokenizer.get_vocab_size(), 2)
        weights[ids] = torch.tensor([[side, 0.5], [side, 0.0]])
        return SentenceTransformer(
            modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu"
        )

    def hits(name, text, is_hit):
        own = OwnSet(
            name, "hits", ([text],), 1, "", lambda vectors: lambda _: float(is_hit(vectors[0, 0]))
        )
        return OwnSetEvaluator(own)

    evaluators = {"dev": hits("dev", "dog", lambda x: abs(x) > 0.5)}
    evaluators["everyday"] = hits("everyday", "cat", lambda x: x > 0)
    spec = EvaluateSpec.model_validate({"general": {"everyday": "pairs.jsonl"}, "retention": 0.3})
    found = {"spearman_start": {"dev": 100.0, "everyday": 100.0}}
    for best, share in ((None, 0.4), (100.0, 0.2)):
        inputs, kind = Inputs(None, evaluators, {}), kind_of(ModelSpec(base="x"))
        limits, known = limits_of(spec, evaluators), found | {"best_dev": best}
        told = keep_general(limits, model(-1.0), model(1.0), kind, inputs, known)
        assert told == {"trained_share": share}


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ("{retention: 0.3}", "expected 'general' beside 'retention', found none"),
        ("{general: {a: dev.jsonl}, test: {a: dev.jsonl}}", "expected each name once, found 'a'"),
        ("{general: {train: dev.jsonl}}", "expected a name of its own for each set"),
    ],
)
def test_a_bound_needs_sets_of_names_of_their_own(project, capsys, monkeypatch, block, told):  # noqa: F811
    monkeypatch.chdir(project)
    assert told in refusal(project, capsys, "--set", f"evaluate={block}", *NO_DEV)
