"""The code of a card for plain transformers, by pooling and prompt."""

import re
from typing import get_args

import numpy as np
import pytest
from conftest import make_model
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

from st_jtcse import bundled
from st_jtcse.hub.model_form import model_form
from st_jtcse.modules import load_sentence_transformer
from st_jtcse.pooling_names import PoolingName
from st_jtcse.reports.page import templates


def saved(model, folder, *modules, **said):
    whole = SentenceTransformer(modules=[*model, *modules], device="cpu", **said)
    whole.save_pretrained(str(folder), create_model_card=False)
    return whole


def usage(folder, model):
    template = templates(bundled.folder("model_cards"), autoescape=False).get_template("_usage.md")
    text = template.render(
        form=model_form(folder), max_seq_length=model.max_seq_length, model_id=str(folder)
    )
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize(
    "pooling", sorted({*get_args(PoolingName)} - {"pooler"})
)  # Which twins have alone.
@pytest.mark.parametrize("prompted", [False, True])
def test_plain_transformers_give_the_same(tower_folders, tmp_path, pooling, prompted):
    said = (
        {"prompts": {"query": 'the "old" one: '}, "default_prompt_name": "query"}
        if prompted
        else {}
    )
    start = load_sentence_transformer(tower_folders[0], pooling=pooling, device="cpu")
    model = saved(start, tmp_path / "model", *([Normalize()] if prompted else []), **said)
    (_, plain) = usage(tmp_path / "model", model)
    told = {}
    exec(plain, told)
    expected = model.encode(["A man is eating.", "Someone has a meal.", "The sky is blue."])
    np.testing.assert_allclose(told["embeddings"].numpy(), expected, rtol=1e-5, atol=1e-5)


def test_a_prompt_that_does_not_count_has_no_short_form(tower_folders, tmp_path):
    encoder = make_model(tower_folders[0])[0]
    said = {"prompts": {"query": "old "}, "default_prompt_name": "query"}
    model = saved([encoder, Pooling(32, "mean", include_prompt=False)], tmp_path / "model", **said)
    assert len(usage(tmp_path / "model", model)) == 1
