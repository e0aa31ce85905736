"""`hard_negatives`: pairs get the wrong texts that the start takes for nearly right."""

import json

import numpy as np
import pytest
from conftest import make_model, make_sentences
from test_run import refusal, results, train
from test_stages import project, write  # noqa: F401  # project is a fixture

STAGE = {
    "name": "ranked",
    "model": {"base": "./model"},
    "data": {"pairs": {"file": "faq.jsonl", "columns": ["question", "answer"]}, "labels": "none"},
    "loss": {"type": "MultipleNegativesRankingLoss"},
}
MARGIN = 0.02


@pytest.fixture
def pairs(project):  # noqa: F811
    """Questions and answers of nearly the same words, and a model of them."""
    lines = [{"question": text, "answer": f"{text} now"} for text in make_sentences(60, seed=7)]
    (project / "faq.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    model = make_model(project / "a", "mean")
    model.save_pretrained(str(project / "model"), create_model_card=False)
    return project, lines, model


@pytest.mark.usefixtures("unrehearsed")
def test_each_pair_gets_the_nearest_text_that_is_wrong_enough(pairs, monkeypatch):
    from st_jtcse.training import stage as stages

    project, lines, model = pairs  # noqa: F811
    seen = {}
    own = stages.prepare

    def prepare(job):
        own(job)
        seen["rows"] = job.dataset[:]

    monkeypatch.setattr(stages, "prepare", prepare)
    write(project, STAGE | {"hard_negatives": {"count": 1, "margin": MARGIN}}, max_steps=2)
    assert train(project) == 0
    (record,) = results(project)["stages"]
    asked, right, wrong = seen["rows"].values()
    assert record["hard_negatives"] == len(asked) > 30
    answers = [line["answer"] for line in lines]
    own_answer = {line["question"]: line["answer"] for line in lines}
    vectors = dict(zip(answers, model.encode(answers, normalize_embeddings=True)))
    for question, answer, other in zip(asked, right, wrong):
        assert answer == own_answer[question] != other
        cosines = np.array([*vectors.values()]) @ model.encode(question, normalize_embeddings=True)
        found = dict(zip(vectors, cosines))
        most = found[answer] * (1 - MARGIN)
        below = [text for text in answers if text != answer and found[text] <= most + 1e-6]
        assert found[other] == pytest.approx(max(found[text] for text in below), abs=1e-6)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"loss": {"type": "MultipleNegativesSymmetricRankingLoss"}}, "expected a loss that takes"),
        (
            {
                "loss": {"type": "CoSENTLoss"},
                "data": {"pairs": {"file": "faq.jsonl", "columns": ["question", "answer", "n"]}},
            },
            "expected pairs without labels",
        ),
        (
            {
                "data": {
                    "pairs": {"file": "faq.jsonl", "columns": ["question", "answer", "answer"]},
                    "labels": "none",
                }
            },
            "'hard_negatives' completes pairs of two texts, found 3",
        ),
    ],
)
def test_what_it_cannot_complete_is_refused(pairs, change, told, capsys):
    project, _, _ = pairs  # noqa: F811
    write(project, STAGE | {"hard_negatives": {}} | change, max_steps=2)
    assert told in refusal(project, capsys)
