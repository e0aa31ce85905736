"""Published checkpoints by their names: how they embed, once, and what is said of it."""

import shutil

import pytest
import torch
from conftest import make_model

from st_jtcse.cli import eval as command
from st_jtcse.errors import PoolingNeeded, UserError
from st_jtcse.evaluation.given_models import load_model
from st_jtcse.modules import load_sentence_transformer
from st_jtcse.papers.evaluation.published import as_published, published

pytestmark = pytest.mark.usefixtures("offline")


def test_every_checkpoint_is_there_once_with_one_way_and_a_source():
    names = [model.rpartition("/")[2] for entry in published() for model in entry.models]
    assert len(names) == len(set(names))
    for entry in published():
        assert sum(map(bool, (entry.pooling, entry.template, entry.out))) == 1 and entry.source
        assert entry.template is None or (
            entry.template.count("[X]"),
            entry.template.count("[MASK]"),
        ) == (1, 1)


def test_a_known_checkpoint_is_pooled_as_its_authors_do_unless_told_otherwise(
    tower_folders, tmp_path
):
    folder = shutil.copytree(tower_folders[0], tmp_path / "pcl-bert-base-uncased")
    found = load_model(str(folder))
    assert (
        found.model.encode(["one dog"]) == make_model(tower_folders[0]).encode(["one dog"])
    ).all()
    assert found.note.endswith(
        "embeds by CLS state, as published (README of qiyuw/PeerCL, --pooler cls_before_pooler)"
    )
    told = load_model(str(folder), pooling="mean")
    assert told.note == "" and told.model[1].get_config_dict()["pooling_mode"] == "mean"
    prompted = shutil.copytree(tower_folders[0], tmp_path / "SNCSE-bert-base-uncased")
    template = as_published(str(prompted)).template
    expected = load_sentence_transformer(prompted, template=template, device="cpu").encode(
        ["one dog"]
    )
    torch.testing.assert_close(load_model(str(prompted)).model.encode(["one dog"]), expected)


def test_names_that_are_not_known_and_checkpoints_that_cannot_be_are_told(tower_folders, tmp_path):
    assert (
        as_published("bert-base-uncased") is None
        and as_published("someone/pcl-bert-base-uncased") is None
    )
    with pytest.raises(PoolingNeeded):
        load_model(str(shutil.copytree(tower_folders[0], tmp_path / "mine")))
    with pytest.raises(
        UserError,
        match="its trained prompts, states before every layer, are not part of a plain enc",
    ):
        as_published("YuxinJiang/unsup-promcse-bert-base-uncased")


def test_the_command_says_it_in_a_line_and_keeps_it_out_of_cards(
    tower_folders, evaluation_data, tmp_path, capsys
):
    folder = shutil.copytree(tower_folders[0], tmp_path / "diffcse-bert-base-uncased-sts")
    given = [str(folder), "--task", "senteval/STSB", "--data", str(evaluation_data)]
    assert command.main(given) == 0
    assert "embeds by CLS state, as published (README of voidism/DiffCSE" in " ".join(
        capsys.readouterr().out.split()
    )
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
    assert command.main([*given, "--card"]) == 2
    assert (
        "--card shows what the model's own modules reach, and it has none"
        in capsys.readouterr().err
    )
