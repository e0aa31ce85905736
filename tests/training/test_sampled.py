"""The `sample` of a stage: a part of a large text, the same one wherever it is drawn."""

from conftest import make_sentences
from test_neighbours_of_teachers import labels_of
from test_run import project, refusal, results, train  # noqa: F401  # project is a fixture

from st_jtcse.data import Source, hold_out, load_sentences, sampled, sentences_sha256

SAMPLE = ["--set", "stages.encoder.sample=9"]


def test_a_sample_is_drawn_from_the_whole_text_in_its_order(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"sentence {number}\n" for number in range(1000)))
    whole = load_sentences([Source(file=text)])
    some = sampled(whole, 200)
    numbers = [int(sentence.split()[1]) for sentence in some.dataset["sentence"]]
    assert len(set(numbers)) == 200 and numbers == sorted(numbers)
    # Of each quarter about 50: a fair draw lies within 25 in all but one of ten thousand texts.
    assert all(25 < sum(low <= n < low + 250 for n in numbers) < 75 for low in (0, 250, 500, 750))
    assert some.sha256 == sentences_sha256(some.dataset) == sampled(whole, 200).sha256
    assert sampled(whole, 1000) is whole


def test_a_stage_computes_vectors_of_its_sample_alone(project, monkeypatch):  # noqa: F811
    monkeypatch.chdir(project)
    whole, _, _ = labels_of(project)
    dataset, _, inputs = labels_of(project, *SAMPLE)
    assert len(dataset) == 9 < len(whole)
    assert set(dataset["sentence"]) < set(whole["sentence"])
    assert inputs.hashes["train"] == sentences_sha256(dataset.select_columns("sentence"))


def test_a_run_trains_on_the_sample_and_records_it(project):  # noqa: F811
    assert train(project, "--stage", "encoder", "--set", "stages.encoder.sample=20") == 0
    (stage,) = results(project)["stages"]
    assert stage["sentences"] == 20


def test_a_sample_of_none_is_refused(project, capsys):  # noqa: F811
    told = refusal(project, capsys, "--set", "stages.encoder.sample=0")
    assert "stages.encoder.sample" in told and "found 0" in told


def test_what_other_stages_hold_out_is_withheld_and_the_sample_is_of_the_rest(project, monkeypatch):  # noqa: F811
    monkeypatch.chdir(project)
    text = project / "text.txt"
    text.write_text("\n".join(dict.fromkeys(make_sentences(220))) + "\n")
    kept, held = hold_out(load_sentences([Source(file=text)]))
    withheld = ["--set", "stages.encoder.withhold=true"]
    dataset, _, inputs = labels_of(project, *withheld)
    assert dataset["sentence"][:] == kept.dataset["sentence"][:]
    assert inputs.hashes["train"] == kept.sha256 and inputs.kept_out is None
    dataset, _, inputs = labels_of(project, *withheld, *SAMPLE)
    assert inputs.hashes["train"] == sampled(kept, 9).sha256
    assert not set(dataset["sentence"]) & set(held.dataset["sentence"])


def test_what_is_held_out_is_not_withheld_once_more(project, capsys):  # noqa: F811
    both = ["withhold=true", "evaluate={dev: unlabelled}"]
    told = refusal(
        project, capsys, *(part for key in both for part in ("--set", f"stages.encoder.{key}"))
    )
    assert "holds out the same sentences. Remove 'withhold'." in told
