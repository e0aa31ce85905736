"""st-score with a tiny language model."""

import sys

import pytest
from conftest import make_model, make_sentences, save_encoder, save_language_model
from transformers import AutoTokenizer

from st_jtcse.data import Source, load_pair_scores
from st_jtcse.errors import UserError
from st_jtcse.papers.cli.score import main
from st_jtcse.papers.data.judge import Judge, judged_scores, neighbour_pairs, score_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("score")
    save_language_model(root / "judge", 1)
    make_model(save_encoder(root / "encoder", 1)).save_pretrained(
        root / "scorer", create_model_card=False
    )
    (root / "text.txt").write_text("\n".join(make_sentences(12)) + "\n")
    return root


def score(folder, *options):
    return main(
        [
            str(folder / "text.txt"), "--scorer", str(folder / "scorer"), "--judge", str(folder / "judge"),
            "--neighbours", "2", "--max-new-tokens", "2", "--batch-size", "4",
            "--cache-dir", str(folder / "cache"), *map(str, options),
        ]
    )  # fmt: skip


def test_neighbours_are_judged_into_a_file_that_ls_rns_reads(folder, tmp_path, capsys):
    assert score(folder, "--output", tmp_path / "scores.jsonl") == 0
    sentences = (folder / "text.txt").read_text().splitlines()
    found = load_pair_scores(Source(file=tmp_path / "scores.jsonl"), sentences)
    assert f"Wrote {len(found.pairs)} pairs" in capsys.readouterr().out
    assert 12 <= len(found.pairs) <= 24 and {value for _, _, value in found.pairs} == {0.25, 0.75}
    # The answers are kept: the second run asks nothing, and a judge that cannot answer does not
    # matter.
    before = sorted((folder / "cache").iterdir())
    assert score(folder, "--output", tmp_path / "again.jsonl") == 0
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "scores.jsonl").read_bytes()
    assert sorted((folder / "cache").iterdir()) == before


def test_answers_do_not_depend_on_the_batch(folder, tmp_path):
    pairs = [tuple(make_sentences(2, seed)) for seed in range(9)]
    one, four = (Judge(str(folder / "judge"), max_new_tokens=3, batch_size=size) for size in (1, 4))
    assert one.answers(pairs) == four.answers(pairs)
    assert judged_scores(pairs, four, tmp_path, shard_size=4) == [
        score_of(answer) for answer in one.answers(pairs)
    ]


def test_braces_of_a_sentence_stay(folder):
    judge = Judge(str(folder / "judge"), "{sentence1} {x} {sentence2}")
    assert judge._prompt("{sentence2}", "b") == "{sentence2} {x} b"


def test_a_chat_template_writes_the_start_token_alone(folder, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(folder / "judge")
    tokenizer.chat_template = "[CLS] {{ messages[0]['content'] }} red"
    save_language_model(tmp_path / "chat", 1)
    tokenizer.save_pretrained(tmp_path / "chat")
    for name, expected in (
        ("chat", "[CLS] a dog and a cat red"),
        ("judge", "[CLS] a dog and a cat [SEP]"),
    ):
        judge = Judge(
            str((tmp_path if name == "chat" else folder) / name), "{sentence1} and {sentence2}"
        )
        ids = judge._tokens([judge._prompt("a dog", "a cat")])["input_ids"][0]
        assert judge.tokenizer.convert_ids_to_tokens(ids) == expected.split()


class Stopped(Exception):
    pass


def test_an_interrupted_judge_goes_on_after_its_answers(folder, tmp_path, monkeypatch):
    pairs = [tuple(make_sentences(2, seed)) for seed in range(9)]
    judge = Judge(str(folder / "judge"), max_new_tokens=2)
    whole = judged_scores(pairs, judge, tmp_path / "whole", shard_size=3)
    answers, asked = judge.answers, []

    def stop_at_the_third_shard(some):
        if len(asked) == 6:
            raise Stopped
        asked.extend(some)
        return answers(some)

    monkeypatch.setattr(judge, "answers", stop_at_the_third_shard)
    with pytest.raises(Stopped):
        judged_scores(pairs, judge, tmp_path / "cut", shard_size=3)
    assert asked == pairs[:6]
    monkeypatch.setattr(judge, "answers", lambda some: asked.extend(some) or answers(some))
    assert judged_scores(pairs, judge, tmp_path / "cut", shard_size=3) == whole
    assert asked == pairs


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("0.8", 0.8),
        ("1", 1.0),
        ("0.", 0.0),
        ("Similarity: .5.", 0.5),
        ("**Score:** 0.8", 0.8),
        ('Answer: "0.25"', 0.25),
        ("**Similarity score: 0.3**", 0.3),
        ("0.8\nSentence 1: a dog", 0.8),
        ("0.8, because both run", 0.8),
        ("0.8 - very similar", 0.8),
        ("0.8\n0.7", 0.8),
    ],
)
def test_an_answer_that_begins_with_a_number_is_that_number(answer, expected):
    assert score_of(answer) == expected


@pytest.mark.parametrize(
    "answer",
    [
        "", "none", "7 of 10", "1.5", "0,8", "0, 8", "1/5", "1 / "
                                                            "5", "*1*/10", "1 out of "
                                                                           "10", "1 (out of "
                                                                                 "10)", "1 of 5",
        "1%", "0.5 percent", "0.2-0.4", "0.2 - 0.4", "0 to "
                                                     "1", "0 or "
                                                          "1", "1e-3", "-0.5", "\u22120.5", "0.8.1", "1st",
        "Sentence 1 and Sentence 2 are unrelated: 0.1", "The similarity is "
                                                        "0.8", "1. Sentence 1 is of a dog", "1:10",
    ],
)  # fmt: skip
def test_any_other_answer_is_none(answer):
    assert score_of(answer) is None


def test_answers_are_kept_for_the_whole_list_of_pairs(folder, tmp_path, monkeypatch):
    pairs = [tuple(make_sentences(2, seed)) for seed in range(5)]
    judge = Judge(str(folder / "judge"), max_new_tokens=2)
    answers, asked = judge.answers, []
    monkeypatch.setattr(judge, "answers", lambda some: asked.extend(some) or answers(some))
    whole = judged_scores(pairs, judge, tmp_path)
    asked.clear()
    assert judged_scores(pairs, judge, tmp_path) == whole and not asked
    assert judged_scores(pairs[:4], judge, tmp_path) == whole[:4] and asked == pairs[:4]


def test_each_pair_of_neighbours_is_listed_once(folder):
    scorer = make_model(folder / "encoder")
    sentences = make_sentences(8)
    pairs = neighbour_pairs([*sentences, sentences[0]], scorer, 3)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs) and all(
        first != second for first, second in pairs
    )
    embeddings = scorer.encode(sentences, normalize_embeddings=True)
    nearest = sorted(range(1, 8), key=lambda other: -float(embeddings[0] @ embeddings[other]))[:3]
    with_first = {second for first, second in pairs if first == sentences[0]}
    assert {sentences[other] for other in nearest} <= with_first


def test_an_index_finds_the_same_pairs_and_is_asked_for_where_it_is_missing(folder, monkeypatch):
    scorer = make_model(folder / "encoder")
    sentences = make_sentences(60)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError) as caught:
        neighbour_pairs(sentences, scorer, 3, exact=len(set(sentences)) - 1)
    assert str(caught.value) == (
        f"The nearest neighbours of more than {len(set(sentences)) - 1} texts, here "
        f"{len(set(sentences))}, are found "
        "by faiss, which is not installed; install it with: pip install 'st-jtcse[index]'."
    )
    plain = neighbour_pairs(sentences, scorer, 3, exact=len(set(sentences)))
    monkeypatch.undo()
    pytest.importorskip("faiss")
    assert neighbour_pairs(sentences, scorer, 3, exact=0) == plain


@pytest.mark.parametrize(
    ("spoilt", "fault"), [(float("nan"), "is not finite"), (0.0, "is zero, so it has no cosine")]
)
def test_a_sentence_without_a_usable_embedding_is_named(folder, spoilt, fault):
    scorer = make_model(folder / "encoder")
    sentences = list(dict.fromkeys(make_sentences(8)))
    encode = scorer.forward

    def forward(features, **kwargs):
        found = encode(features, **kwargs)
        texts = scorer.tokenizer.batch_decode(features["input_ids"], skip_special_tokens=True)
        found["sentence_embedding"][[text == sentences[5] for text in texts]] = spoilt
        return found

    scorer.forward = forward
    with pytest.raises(UserError) as caught:
        # Repeated sentences count once, rows as they are in the text.
        neighbour_pairs([sentences[0], *sentences], scorer, 3)
    assert str(caught.value) == (
        f"A scorer's embedding of sentence 7, {sentences[5]!r}, {fault}; leave the sentence out, "
        "or choose another "
        "scorer."
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--judge", "nowhere/at-all/model"], "cannot be loaded as a text-generation model"),
        (
            ["--scorer", "nowhere/at-all/model"],
            "--scorer: The model 'nowhere/at-all/model' cannot be loaded",
        ),
        (
            ["--prompt", "PROMPT"],
            "The prompt lacks {sentence2}; write the sentence's place into it.",
        ),
        (["--prompt", "missing.txt"], "--prompt: missing.txt cannot be read"),
        (["--output", "TEXT"], "exists already; choose another file."),
    ],
)
def test_faults_are_one_sentence(folder, tmp_path, capsys, change, message):
    (tmp_path / "prompt.txt").write_text("only {sentence1}")
    names = {"PROMPT": tmp_path / "prompt.txt", "TEXT": folder / "text.txt"}
    assert (
        score(
            folder, "--output", tmp_path / "new.jsonl", *(names.get(part, part) for part in change)
        )
        == 2
    )
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new.jsonl").exists()


def test_answers_without_a_number_leave_no_file(folder, tmp_path, capsys):
    judge = save_language_model(tmp_path / "judge", 1, ("maybe", "perhaps"))
    assert score(folder, "--output", tmp_path / "new.jsonl", "--judge", judge) == 2
    assert (
        "begins with a number from 0 to 1; change the prompt or the judge."
        in capsys.readouterr().err
    )
    assert not (tmp_path / "new.jsonl").exists()


def test_a_text_of_one_sentence_has_no_pairs(folder, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("one dog\none dog\n")
    models = ["--scorer", str(folder / "scorer"), "--judge", str(folder / "judge")]
    assert main([str(tmp_path / "text.txt"), *models, "--output", str(tmp_path / "new.jsonl")]) == 2
    assert "text.txt holds one sentence, and pairs need two" in capsys.readouterr().err


def test_a_plain_encoder_needs_its_pooling_said(folder, tmp_path, capsys):
    assert (
        score(folder, "--scorer", folder / "encoder", "--output", tmp_path / "refused.jsonl") == 2
    )
    assert capsys.readouterr().err.endswith("add --pooling cls or --pooling mean.\n")
    told = []
    for scorer, options in (
        ("encoder", ["--pooling", "cls"]),
        ("scorer", []),
    ):  # The second is the first with CLS.
        output = tmp_path / f"{scorer}.jsonl"
        assert score(folder, "--scorer", folder / scorer, "--output", output, *options) == 0
        told.append(output.read_text())
    assert told[0] == told[1]
