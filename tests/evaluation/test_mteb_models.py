"""Our models in MTEB: mock run, results that never collide, texts encoded once, a registry of local
folders.
"""

import pytest
from conftest import make_model, make_pairs, write_rows
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from st_jtcse.errors import UserError
from st_jtcse.evaluation.given_models import load_model
from st_jtcse.evaluation.jobs import Context
from st_jtcse.evaluation.mteb_models import UniqueTextEncoder, mteb, quietly, register
from st_jtcse.evaluation.mteb_tasks import MTEBJob
from st_jtcse.evaluation.selection import select
from st_jtcse.evaluation.suites import RETRIEVAL, Row, Suite
from st_jtcse.modules import TwinCrossAttentionEncoder, ensemble_of
from st_jtcse.records import TaskRecord

pytestmark = pytest.mark.usefixtures("offline")

DEV = Row(paper="dev", task="STSBenchmarkMultilingualSTS", splits=("dev",))


def twin(tower_folders):
    encoder = TwinCrossAttentionEncoder.from_towers(*tower_folders)
    return SentenceTransformer(
        modules=[encoder, Pooling(encoder.get_embedding_dimension(), "cls")], device="cpu"
    )


def sts_task(seed=1):
    task = mteb.get_task("STS12")
    rows = make_pairs(12, seed)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    task.dataset = DatasetDict(test=Dataset.from_dict(columns))
    task.data_loaded = True
    return task


def test_mteb_s_mock_run_passes_for_the_twin(tower_folders):
    with quietly():
        results = mteb.mock_run(UniqueTextEncoder(twin(tower_folders), "twin"))
    assert results.all_passed
    assert sum(status is not None for _, status in results.items()) >= 28


@pytest.mark.parametrize("kind", ["ensemble", "plain"])
def test_mock_tasks_of_each_kind_pass_for_ensemble_and_plain_model(kind, tower_folders):
    from mteb.mocks import ALL_MOCK_TASK_TEST_GRID

    models = [make_model(folder) for folder in tower_folders]
    model = ensemble_of(models) if kind == "ensemble" else models[0]
    kinds = (
        "STS",
        "Classification",
        "Retrieval",
        "Reranking",
        "BitextMining",
        "PairClassification",
    )
    first = {}
    for task in ALL_MOCK_TASK_TEST_GRID:
        if task.metadata.type in kinds and task.metadata.modalities == ["text"]:
            first.setdefault(task.metadata.type, task)
    assert set(first) == set(kinds)
    with quietly():
        encoder = UniqueTextEncoder(model, kind)
        result = mteb.evaluate(encoder, list(first.values()), cache=None, show_progress_bar=False)
    assert len(result.task_results) == len(kinds)
    names = [task.metadata.type for task in first.values()]
    retrieval = result.task_results[names.index("Retrieval")].scores["test"][0]
    assert set(RETRIEVAL) <= set(retrieval)


def test_two_folders_of_one_name_do_not_share_results(model_folders, tmp_path):
    cache = mteb.ResultCache(tmp_path)
    metas = [register(folder) for folder in model_folders]
    assert metas[0].name != metas[1].name
    assert metas[0].revision != metas[1].revision
    scores = []
    with quietly():
        for meta in (*metas, metas[0]):
            result = mteb.evaluate(meta, sts_task(), cache=cache, show_progress_bar=False)
            scores.append(result.task_results[0].get_score())
        alone = mteb.evaluate(
            load_model(str(model_folders[1])).model, sts_task(), cache=None, show_progress_bar=False
        )
    assert abs(scores[0] - scores[1]) > 1e-3
    assert scores[0] == pytest.approx(scores[2], abs=1e-5)
    assert scores[1] == pytest.approx(alone.task_results[0].get_score(), abs=1e-6)


def test_the_same_name_with_other_weights_has_its_own_results(tower_folders, tmp_path):
    cache, scores = mteb.ResultCache(tmp_path), []
    with quietly():
        for folder in tower_folders:
            encoder = UniqueTextEncoder(make_model(folder), "mine")
            result = mteb.evaluate(encoder, sts_task(), cache=cache, show_progress_bar=False)
            scores.append(result.task_results[0].get_score())
    assert scores[0] != scores[1]


def test_a_registered_folder_loads_by_its_name(model_folders):
    meta = register(model_folders[0])
    with quietly():
        loaded = mteb.get_model(meta.name)
    assert meta.name.startswith("local/mine-")
    assert loaded.mteb_model_meta.revision == meta.revision
    expected = load_model(str(model_folders[0])).model.encode(["one dog"])
    assert (loaded.model.encode(["one dog"]) == expected).all()


def test_a_folder_changed_since_registration_is_refused(tower_folders, tmp_path):
    make_model(tower_folders[0]).save_pretrained(str(tmp_path / "m"), create_model_card=False)
    meta = register(tmp_path / "m")
    make_model(tower_folders[1]).save_pretrained(str(tmp_path / "m"), create_model_card=False)
    with pytest.raises(UserError, match="has changed since it was registered"):
        mteb.get_model(meta.name)


def test_a_task_s_texts_are_encoded_once(tower_folders, monkeypatch):
    model, task = make_model(tower_folders[0]), sts_task()
    rows = task.dataset["test"]
    rows = Dataset.from_dict(
        {
            "sentence1": [*rows["sentence1"], *rows["sentence2"]],
            "sentence2": [*rows["sentence2"], *rows["sentence1"]],
            "score": [*rows["score"], *reversed(rows["score"])],
        }
    )
    task.dataset = DatasetDict(test=rows)
    asked, encode = [], model.encode
    monkeypatch.setattr(
        model, "encode", lambda texts, **options: asked.extend(texts) or encode(texts, **options)
    )
    with quietly():
        ours = mteb.evaluate(
            UniqueTextEncoder(model, "mine"), task, cache=None, show_progress_bar=False
        )
        assert sorted(asked) == sorted({*rows["sentence1"], *rows["sentence2"]})
        stock = mteb.evaluate(model, task, cache=None, show_progress_bar=False)
    assert ours.task_results[0].get_score() == pytest.approx(
        stock.task_results[0].get_score(), abs=1e-6
    )


def run(job, encoder, earlier=None, keep=lambda record: None):
    context = Context(None, 8)
    context.encoder = encoder
    return job.run(context, earlier, keep).scores


def job_of(folder, task, **more):
    row = {"paper": task, "task": task, **more}
    return next(iter(select([Suite.model_validate({"rows": [row]})], folder).values()))


def test_tasks_take_local_pairs_and_mirrors_of_the_hub(model, evaluation_data, tmp_path):
    from_jsonl = job_of(evaluation_data, "STS12")
    assert from_jsonl.source == "sts12.test.jsonl"
    write_rows(
        tmp_path / "mteb" / "sts12-sts" / "test.jsonl", make_pairs(20, 1) + make_pairs(12, 2)
    )
    from_mirror = job_of(tmp_path, "STS12")
    assert from_mirror.source == "mteb/sts12-sts"
    encoder = UniqueTextEncoder(model, "mine")
    first, second = (run(task, encoder)["test"]["default"] for task in (from_jsonl, from_mirror))
    assert first["cosine_spearman"] == pytest.approx(second["cosine_spearman"], abs=1e-9)


def test_sick_r_is_run_on_senteval_s_pairs_where_the_suite_says_so(
    model, evaluation_data, monkeypatch
):
    task = job_of(evaluation_data, "SICK-R", pairs="SICKR")
    seen = []
    encoder = UniqueTextEncoder(model, "mine")
    encode = encoder.encode
    monkeypatch.setattr(
        encoder,
        "encode",
        lambda inputs, **options: seen.append(len(inputs.dataset)) or encode(inputs, **options),
    )
    assert -1 <= run(task, encoder)["test"]["default"]["cosine_spearman"] <= 1
    assert seen == [15, 15]
    assert job_of(evaluation_data, "SICK-R").source.startswith("mteb/sickr-sts@")


def test_a_task_runs_the_chosen_subset_and_split_only():
    task = MTEBJob(DEV.model_copy(update={"subsets": ("en",)}))
    assert (task.subsets, task.splits, task.main_score) == (["en"], ["dev"], "cosine_spearman")


def test_subsets_asked_for_later_are_run_alone_and_kept_with_the_others(model):
    job = MTEBJob(DEV.model_copy(update={"subsets": ("en", "de")}))
    parts = {}
    for seed, subset in enumerate(job.subsets):
        rows = make_pairs(10, seed)
        parts[subset] = DatasetDict(
            dev=Dataset.from_dict({name: [row[name] for row in rows] for name in rows[0]})
        )
    job._task.dataset, job._task.data_loaded = parts, True
    encoder, kept = UniqueTextEncoder(model, "mine"), []
    known = {"main_score": 0.5, "cosine_spearman": 0.5}
    earlier = TaskRecord(
        source=job.source,
        sha256=None,
        main_score=job.main_score,
        scores={"dev": {"en": known}},
        seconds=7.0,
    )
    scores = run(job, encoder, earlier, kept.append)
    assert scores["dev"]["en"] == known and -1 <= scores["dev"]["de"]["cosine_spearman"] <= 1
    assert kept[-1].scores == scores and kept[-1].seconds >= 7.0
    # All is known now: no data are needed.
    job._task.load_data = None
    assert run(job, encoder, kept[-1]) == scores
