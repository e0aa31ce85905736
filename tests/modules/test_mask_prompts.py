"""A prompt around each text, whose mask token is the embedding: by hand, and once saved."""

import pytest
import torch
from conftest import make_encoder, make_tokenizer, save_encoder
from processes import run_code

from st_jtcse.errors import UserError
from st_jtcse.modules import load_sentence_transformer
from st_jtcse.modules.mask_prompts import template_lengths

TEXTS = ["dog", "the man reads one old book in the red house"]
TEMPLATE = "the book [X] reads [MASK] in"
LOAD = """
import sys
import torch
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(sys.argv[1], device="cpu")
torch.save(model.encode(["dog", "the man reads one old book in the red house"], convert_to_tensor=True), sys.argv[2])
"""


def test_the_mask_tokens_state_within_the_template_is_the_embedding_also_once_saved(
    tower_folders, tmp_path
):
    model = load_sentence_transformer(tower_folders[0], template=TEMPLATE, device="cpu")
    tokenizer, encoder = make_tokenizer(), make_encoder(1)
    expected = []
    for text in TEXTS:
        ids = tokenizer(f"the book {text} reads [MASK] in", return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            expected.append(encoder(ids).last_hidden_state[0, -3])
        assert ids[0, -3] == tokenizer.mask_token_id
    found = model.encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-5, atol=1e-5)
    assert template_lengths(model.tokenizer) == (3, 4) and template_lengths(tokenizer) is None
    assert not any(weight.requires_grad for weight in model[1].parameters())
    model.save_pretrained(str(tmp_path / "model"), create_model_card=False)
    run_code(LOAD, str(tmp_path / "model"), str(tmp_path / "found.pt"), folder=tmp_path)
    assert torch.equal(torch.load(tmp_path / "found.pt"), found)


def test_a_text_that_is_too_long_is_cut_not_the_template(tower_folders):
    model = load_sentence_transformer(
        tower_folders[0], template=TEMPLATE, max_seq_length=9, device="cpu"
    )
    ids = model.preprocess([TEXTS[1]])["input_ids"][0].tolist()
    assert len(ids) == 9 and model.tokenizer.decode(ids[-4:]) == "reads [MASK] in [SEP]"


@pytest.mark.parametrize("template", ["the book [X] reads", "reads [MASK]", "[X] [X] [MASK]"])
def test_a_template_names_text_and_mask_once(tower_folders, template):
    with pytest.raises(
        UserError, match=r"expected a template with \[X\] and \[MASK\], each once, found"
    ):
        load_sentence_transformer(tower_folders[0], template=template)


def test_a_vocabulary_without_a_mask_token_is_refused(tmp_path):
    save_encoder(tmp_path / "encoder", 1)
    tokenizer = make_tokenizer()
    tokenizer.mask_token = None
    tokenizer.save_pretrained(tmp_path / "encoder")
    with pytest.raises(
        UserError, match="needs a mask token in the vocabulary of a fast tokenizer, found none"
    ):
        load_sentence_transformer(tmp_path / "encoder", template=TEMPLATE)
