import numpy as np
import pytest
from conftest import make_sentences, save_encoder
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from st_jtcse.data.teachers import with_teacher_labels
from st_jtcse.errors import UserError

SENTENCES = make_sentences(9)


def teacher(folder, size=32):
    return SentenceTransformer(modules=[Transformer(str(folder)), Pooling(size, "cls")], device="cpu")


def test_labels_are_the_weighted_sum_of_the_teachers_embeddings(tower_folders):
    first, second = (teacher(folder) for folder in tower_folders)
    labelled = with_teacher_labels(Dataset.from_dict({"sentence": SENTENCES}), [first, second], [0.3, 0.7])
    expected = 0.3 * first.encode(SENTENCES) + 0.7 * second.encode(SENTENCES)
    assert labelled["sentence"][:] == SENTENCES
    np.testing.assert_allclose(np.array(labelled["label"][:]), expected, rtol=1e-5, atol=1e-6)


def test_teachers_of_two_sizes_are_refused(tower_folders, tmp_path):
    small = teacher(save_encoder(tmp_path / "small", 3, hidden_size=16), 16)
    with pytest.raises(UserError, match=r"must have one size, found \[32, 16\]; leave one out"):
        with_teacher_labels(Dataset.from_dict({"sentence": SENTENCES}), [teacher(tower_folders[0]), small], [1, 1])
