import json
import time
from contextlib import nullcontext, suppress

import numpy as np
import pytest
import torch
from conftest import make_model, make_sentences, save_encoder
from datasets import Dataset
from processes import run_two, start
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from st_jtcse.data.shards import SharesMissing, in_share
from st_jtcse.data.teachers import with_teacher_labels
from st_jtcse.errors import UserError
from st_jtcse.hashing import sha256
from st_jtcse.modules import MultiTokenizerEnsemble

SENTENCES = make_sentences(9)


def teacher(folder, size=32):
    return SentenceTransformer(
        modules=[Transformer(str(folder)), Pooling(size, "cls")], device="cpu"
    )


def label(teachers, weights, cache, sentences=SENTENCES, **settings):
    data = Dataset.from_dict({"sentence": sentences})
    return with_teacher_labels(data, "-".join(sentences), teachers, weights, cache, **settings)


def vectors(labelled):
    return np.array(labelled["label"][:], dtype=np.float64)


def test_labels_are_the_weighted_sum_of_the_teachers_embeddings(tower_folders, tmp_path):
    first, second = (teacher(folder) for folder in tower_folders)
    labelled = label([first, second], [0.3, 0.7], tmp_path, shard_size=4)
    expected = 0.3 * first.encode(SENTENCES) + 0.7 * second.encode(SENTENCES)
    assert labelled["sentence"][:] == SENTENCES
    assert str(labelled.features["label"]) == "List(Value('float16'), length=32)"
    # Half precision has eleven significant bits.
    np.testing.assert_allclose(vectors(labelled), expected, rtol=2**-11, atol=1e-6)


def test_gram_matrix_of_the_concatenation_is_the_weighted_sum_of_the_cosine_matrices(
    tower_folders, tmp_path
):
    small = teacher(save_encoder(tmp_path / "small", 3, hidden_size=16), 16)
    teachers = [teacher(tower_folders[0]), small]
    found = vectors(label(teachers, [1 / 3, 2 / 3], tmp_path, form="concatenation"))
    assert found.shape == (9, 48)
    cosines = []
    for each in teachers:
        embeddings = each.encode(SENTENCES).astype(np.float64)
        embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
        cosines.append(embeddings @ embeddings.T)
    np.testing.assert_allclose(found @ found.T, cosines[0] / 3 + 2 * cosines[1] / 3, atol=1e-3)


def test_labels_train_the_student_that_they_fit(tower_folders, tmp_path):
    labelled = label([teacher(tower_folders[0])], [1.0], tmp_path)
    batch = torch.tensor(np.array(labelled[:3]["label"]))
    assert batch.shape == (3, 32)
    assert labelled.column_names == ["sentence", "label"]


@pytest.mark.parametrize(
    ("value", "form", "message"),
    [
        (float("nan"), "sum", "is not finite; leave the sentence out, or choose another teacher."),
        (float("nan"), "concatenation", "is not finite"),
        (0.0, "concatenation", "is zero, so it has no cosine; leave the sentence out"),
    ],
)
def test_a_sentence_without_a_usable_embedding_is_named(
    tower_folders, tmp_path, value, form, message
):
    broken = teacher(tower_folders[0])
    words = broken[0].model.embeddings.word_embeddings.weight
    final = broken[0].model.encoder.layer[-1].output.LayerNorm
    with torch.no_grad():
        if value:  # NaN for sentences with this word
            words[broken.tokenizer.convert_tokens_to_ids(SENTENCES[3].split()[0])] = value
        else:
            final.weight.zero_()
            final.bias.zero_()
    first = next(text for text in SENTENCES if not value or SENTENCES[3].split()[0] in text.split())
    # Two good sentences and a shard before it, where the first sentence with the word is faulty.
    others = [text for text in SENTENCES if value and SENTENCES[3].split()[0] not in text.split()][
        :2
    ]
    with pytest.raises(UserError) as caught:
        label([broken], [1.0], tmp_path, [*others, *SENTENCES], form=form, shard_size=2)
    row = [*others, *SENTENCES].index(first) + 1
    assert f"A teacher's embedding of sentence {row}, {first!r}, {message}" in str(caught.value)
    assert row > 2 or not value


@pytest.mark.parametrize(
    ("weights", "form", "message"),
    [
        ([1, 1], "sum", r"must have one size, found \[32, 16\]; choose teachers of one size"),
        ([1], "sum", "one weight per teacher, found 1 for 2"),
        ([1, -1], "concatenation", "cannot be negative, found -1"),
        ([1e7], "sum", "beyond half precision"),
    ],
)
def test_unfit_teachers_are_refused(tower_folders, tmp_path, weights, form, message):
    small = teacher(save_encoder(tmp_path / "small", 3, hidden_size=16), 16)
    teachers = [teacher(tower_folders[0]), small][: 1 if weights == [1e7] else 2]
    with pytest.raises(UserError, match=message):
        label(teachers, weights, tmp_path / "cache", form=form)
    assert not list(tmp_path.glob("cache/*.arrow"))


def test_other_weights_sentences_and_lengths_are_other_files(tower_folders, tmp_path):
    model = teacher(tower_folders[0])
    label([model], [1.0], tmp_path)
    label([model], [1.0], tmp_path)
    assert len(list(tmp_path.glob("*.arrow"))) == 1
    label([model], [2.0], tmp_path)
    label([model], [1.0], tmp_path, SENTENCES[:5])
    model.max_seq_length = 6
    label([model], [1.0], tmp_path)
    assert len(list(tmp_path.glob("*.arrow"))) == 4


def test_another_prompt_or_a_members_pooling_is_another_file(tower_folders, tmp_path):
    model = teacher(tower_folders[0])
    label([model], [1.0], tmp_path)
    model.prompts, model.default_prompt_name = {"query": "the big "}, "query"
    label([model], [1.0], tmp_path)
    assert len(list(tmp_path.glob("*.arrow"))) == 2
    for number, pooling in enumerate(("cls", "mean"), start=3):
        members = [make_model(folder, pooling) for folder in tower_folders]
        label(
            [SentenceTransformer(modules=[MultiTokenizerEnsemble(members)], device="cpu")],
            [1.0],
            tmp_path,
        )
        assert len(list(tmp_path.glob("*.arrow"))) == number


def label_forty(tower, cache, log, pause=0.0, processes=1, share=None):
    """Encode 40 sentences in shards of four, or a share of these; a line in the log for every shard
    that is computed.
    """
    if processes > 1:
        torch.distributed.init_process_group("gloo")
    model = teacher(tower)
    encode = model.encode

    def logged(texts, **kwargs):
        result = encode(texts, **kwargs)
        with open(log, "a") as file:
            file.write(texts[0] + "\n")
        time.sleep(pause)
        return result

    model.encode = logged
    part, missing = (nullcontext(), ()) if share is None else (in_share(*share), SharesMissing)
    with part, suppress(missing):
        label([model], [1.0], cache, make_sentences(40), shard_size=4)
    if processes > 1:
        torch.distributed.destroy_process_group()


def only_file(folder):
    (path,) = folder.iterdir()  # No shard is left behind.
    return path


def test_killed_and_repeated_is_byte_identical_and_does_no_shard_twice(tower_folders, tmp_path):
    label_forty(tower_folders[0], tmp_path / "whole", tmp_path / "whole.log")
    log = tmp_path / "cut.log"
    killed = start(label_forty, tower_folders[0], tmp_path / "cut", log, 0.3)
    while not log.exists() or len(log.read_text().splitlines()) < 4:
        assert killed.is_alive()
        time.sleep(0.02)
    killed.kill()
    killed.join()
    shards = list((tmp_path / "cut").glob("*.shards/*.arrow"))
    assert 3 <= len(shards) < 10
    done = len(log.read_text().splitlines())
    label_forty(tower_folders[0], tmp_path / "cut", log)
    # The shard that was being written when the process died is the only one to be computed again.
    again = len(log.read_text().splitlines()) - done
    assert again == 10 - len(shards)
    assert only_file(tmp_path / "cut").read_bytes() == only_file(tmp_path / "whole").read_bytes()


def test_two_processes_write_the_file_of_one(tower_folders, tmp_path):
    label_forty(tower_folders[0], tmp_path / "one", tmp_path / "one.log")
    run_two(
        label_forty,
        tower_folders[0],
        tmp_path / "two",
        tmp_path / "two.log",
        0.0,
        2,
        folder=tmp_path,
    )
    assert sorted((tmp_path / "two.log").read_text().splitlines()) == sorted(
        (tmp_path / "one.log").read_text().splitlines()
    )
    assert sha256(only_file(tmp_path / "two")) == sha256(only_file(tmp_path / "one"))
    assert json.dumps(only_file(tmp_path / "two").name) == json.dumps(
        only_file(tmp_path / "one").name
    )


def test_shares_of_two_processes_each_write_the_file_of_one(tower_folders, tmp_path):
    label_forty(tower_folders[0], tmp_path / "one", tmp_path / "one.log")
    log = tmp_path / "two.log"
    for number in (2, 1):
        own = (tower_folders[0], tmp_path / "two", log, 0.0, 2, (number, 2))
        run_two(label_forty, *own, folder=tmp_path)
        # Four processes in all, so that the first share's first computes three shards of ten.
        assert len(log.read_text().splitlines()) == {2: 4, 1: 10}[number]
    assert sorted(log.read_text().splitlines()) == sorted(
        (tmp_path / "one.log").read_text().splitlines()
    )
    assert only_file(tmp_path / "two").read_bytes() == only_file(tmp_path / "one").read_bytes()


def test_a_share_that_is_killed_leaves_nothing_that_looks_whole(tower_folders, tmp_path):
    label_forty(tower_folders[0], tmp_path / "whole", tmp_path / "whole.log")
    log, cut = tmp_path / "cut.log", tmp_path / "cut"
    killed = start(label_forty, tower_folders[0], cut, log, 0.3, 1, (1, 2))
    while not log.exists() or len(log.read_text().splitlines()) < 3:
        assert killed.is_alive()
        time.sleep(0.02)
    killed.kill()
    killed.join()
    label_forty(tower_folders[0], cut, log, share=(2, 2))
    assert not list(cut.glob("*.arrow"))
    done, shards = len(log.read_text().splitlines()), len(list(cut.glob("*.shards/*.arrow")))
    assert 5 + 2 <= shards < 10
    label_forty(tower_folders[0], cut, log, share=(1, 2))
    assert len(log.read_text().splitlines()) - done == 10 - shards
    assert only_file(cut).read_bytes() == only_file(tmp_path / "whole").read_bytes()
