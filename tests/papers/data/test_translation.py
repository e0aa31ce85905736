"""The Marian pair here has learned a toy language: sentences of up to five words are copied, with
exceptions.

A cat becomes a dog, what begins with "with" has no translation, and what begins with "not" has one
without end.
"""

import gc
import json
import random
import shutil
import time
from pathlib import Path

import pytest
import sentencepiece
import torch
from conftest import WORDS, save_translator
from datasets import Dataset
from processes import run_two, start
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
)

from st_jtcse.errors import UserError
from st_jtcse.hashing import sha256
from st_jtcse.papers.data.translation import Pivot, Translator, round_trip

END, FIRST_WORD, PAD = 0, 2, len(WORDS) + 2
LONGEST, MAX_LENGTH = 5, 8


def make_toy_sentences(count):
    draw = random.Random(1)
    special = {0: ["with"], 1: ["not"], 2: ["cat"]}
    ordinary = [word for word in WORDS if word not in ("with", "not")]
    return [
        " ".join(
            [
                *special.get(draw.randrange(9), draw.choices(ordinary)),
                *draw.choices(ordinary, k=draw.randrange(LONGEST)),
            ]
        )
        for _ in range(count)
    ]


SENTENCES = list(dict.fromkeys(make_toy_sentences(60)))[:40]


def ids_of(sentences):
    rows = [[FIRST_WORD + WORDS.index(word) for word in text.split()] for text in sentences]
    return torch.tensor([[*row, END, *[PAD] * MAX_LENGTH][: MAX_LENGTH + 1] for row in rows])


def targets_of(source):
    cat, dog, never, endless = (
        FIRST_WORD + WORDS.index(word) for word in ("cat", "dog", "with", "not")
    )
    target = source.where(source != cat, dog)
    first = source[:, :1]
    nothing = torch.tensor([END, *[PAD] * MAX_LENGTH])
    return torch.where(first == never, nothing, target).where(first != endless, endless)


def train_marian(steps=300):
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=PAD + 1,
        d_model=64,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=32,
        pad_token_id=PAD,
        decoder_start_token_id=PAD,
        eos_token_id=END,
        bos_token_id=None,
        forced_eos_token_id=END,
        scale_embedding=True,
        dropout=0.0,
    )
    model = MarianMTModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    source = ids_of(make_toy_sentences(64 * steps))
    for ids in source.split(64):
        mask, labels = ids != PAD, targets_of(ids)
        loss = model(
            input_ids=ids,
            attention_mask=mask.long(),
            labels=labels.masked_fill(labels == PAD, -100),
        ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def save_marian(folder, model, source, target):
    """Save as the Hub's pairs are: the search in the configuration, with an end forced at the last
    token.
    """
    pieces = folder / "pieces"
    folder.mkdir(parents=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(WORDS)]),
        model_prefix=str(pieces),
        model_type="word",
        vocab_size=len(WORDS) + 3,
        minloglevel=2,
    )
    vocabulary = ["</s>", "<unk>", *(f"▁{word}" for word in WORDS), "<pad>"]
    (folder / "vocabulary.json").write_text(
        json.dumps({token: index for index, token in enumerate(vocabulary)})
    )
    spm = f"{pieces}.model"
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    change(folder / "config.json", num_beams=4, max_length=512, bad_words_ids=[[PAD]])
    with pytest.warns(UserWarning, match="sacremoses"):
        tokenizer = MarianTokenizer(
            spm,
            spm,
            str(folder / "vocabulary.json"),
            source_lang=source,
            target_lang=target,
            model_max_length=512,
        )
    tokenizer.save_pretrained(folder)
    return folder


def change(path, **settings):
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    root = tmp_path_factory.mktemp("marian")
    model = train_marian()
    save_marian(root / "opus-mt-en-fr", model, "en", "fr")
    save_marian(root / "opus-mt-fr-en", model, "fr", "en")
    return Pivot("fr", str(root / "opus-mt-en-fr"), str(root / "opus-mt-fr-en"))


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    root = tmp_path_factory.mktemp("bart")
    return Pivot(
        "xx", str(save_translator(root / "forward", 0)), str(save_translator(root / "back", 6))
    )


def trip(pivots, cache, sentences=SENTENCES, mode="replace", **settings):
    settings = {"max_length": MAX_LENGTH, "batch_size": 7, "shard_size": 16} | settings
    data = Dataset.from_dict({"sentence": sentences})
    return round_trip(data, "-".join(sentences), pivots, mode, cache, **settings)


@torch.no_grad()
def leg_by_hand(folder, text):
    """Translate one Marian sentence by taking the likeliest word again and again; (text,
    over-long).
    """
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    source = [FIRST_WORD + WORDS.index(word) for word in text.split()] + [END]
    words = [PAD]
    while len(words) <= MAX_LENGTH:
        logits = model(
            input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([words])
        ).logits[0, -1]
        logits[PAD] = -torch.inf
        words.append(int(logits.argmax()))
        if words[-1] == END:
            return " ".join(WORDS[word - FIRST_WORD] for word in words[1:-1]), False
    return " ".join(WORDS[word - FIRST_WORD] for word in words[1:]), True


@pytest.fixture(scope="module")
def by_hand(marian):
    """Round trip and whether it is over-long, by sentence."""
    results = {}
    for sentence in SENTENCES:
        there, long_there = leg_by_hand(marian.forward, sentence)
        back, long_back = leg_by_hand(marian.back, there) if there else ("", False)
        results[sentence] = (back, long_there or long_back)
    return results


def counts_of(by_hand):
    counts = {
        "sentences": len(by_hand),
        "empty": sum(not text for text, _ in by_hand.values()),
        "over_long": sum(over_long for _, over_long in by_hand.values()),
        "identical": sum(text == sentence for sentence, (text, _) in by_hand.items()),
    }
    assert all(0 < count for count in counts.values())
    return counts


def test_round_trips_are_those_of_one_sentence_at_a_time(marian, by_hand, tmp_path):
    found = trip([marian], tmp_path)
    assert found.dataset["sentence"][:] == [
        by_hand[sentence][0] for sentence in SENTENCES if by_hand[sentence][0]
    ]
    assert found.counts == {"fr": counts_of(by_hand)}


def test_counts_are_the_same_from_the_cache_and_nothing_is_translated(
    marian, by_hand, tmp_path, monkeypatch
):
    trip([marian], tmp_path)
    monkeypatch.setattr(Translator, "translate", None)
    found = trip([marian], tmp_path, mode="pair")
    assert found.counts == {"fr": counts_of(by_hand)}
    assert dict(zip(found.dataset["sentence"], found.dataset["round_trip"])) == {
        sentence: text for sentence, (text, _) in by_hand.items() if text
    }
    (path,) = tmp_path.iterdir()
    cached = Dataset.from_file(str(path))
    assert cached.column_names == ["round_trip", "over_long"]
    assert list(zip(cached["round_trip"], cached["over_long"])) == list(by_hand.values())


def test_pivots_follow_one_another_in_their_order(marian, bart, tmp_path):
    alone = [trip([pivot], tmp_path, mode="pair") for pivot in (bart, marian)]
    both = trip([bart, marian], tmp_path, mode="pair")
    assert both.dataset[:] == {
        column: alone[0].dataset[column][:] + alone[1].dataset[column][:]
        for column in ("sentence", "round_trip")
    }
    assert both.counts == alone[0].counts | alone[1].counts
    assert list(both.counts) == ["xx", "fr"]


def test_beam_search_of_any_pair_is_that_of_one_sentence_at_a_time(bart, tmp_path):
    expected = SENTENCES
    tokenizer = AutoTokenizer.from_pretrained(bart.forward)
    for folder in (bart.forward, bart.back):
        model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        model.generation_config.forced_eos_token_id = None
        outputs = (
            model.generate(
                torch.tensor([tokenizer(text)["input_ids"]]),
                num_beams=3,
                do_sample=False,
                max_new_tokens=MAX_LENGTH,
            )[0]
            for text in expected
        )
        expected = [
            tokenizer.decode(output, skip_special_tokens=True).strip() for output in outputs
        ]
        expected = [text for text in expected if text]
    found = trip([bart], tmp_path, beam_size=3)
    assert len(set(expected)) > 10
    assert found.dataset["sentence"][:] == expected


def test_a_source_beyond_the_models_limit_is_over_long(marian, tmp_path):
    forward, back = (
        shutil.copytree(folder, tmp_path / Path(folder).name)
        for folder in (marian.forward, marian.back)
    )
    for folder in (forward, back):
        change(folder / "tokenizer_config.json", model_max_length=5)
    # Four words and the end fit.
    texts = ["a dog runs on", "a dog runs on the"]
    whole, cut = Translator(str(forward), "", beam_size=1, max_length=8, batch_size=2).translate(
        texts
    )
    assert whole == (texts[0], False)
    assert cut == (texts[0], True)
    for pivot in (Pivot("fr", str(forward), marian.back), Pivot("fr", marian.forward, str(back))):
        assert trip([pivot], tmp_path / "cache", texts).counts["fr"]["over_long"] == 1


def test_a_prefix_is_put_before_every_sentence(marian):
    translator = Translator(marian.forward, "red ", beam_size=1, max_length=8, batch_size=2)
    assert translator.translate(["a dog runs"])[0].text == "red a dog runs"


def test_models_in_other_folders_are_the_same_and_all_that_decides_is_in_the_key(marian, tmp_path):
    def files(pivot, **settings):
        trip([pivot], tmp_path / "cache", SENTENCES[:2], **settings)
        return len(list(tmp_path.glob("cache/*.arrow")))

    folders = (
        shutil.copytree(folder, tmp_path / Path(folder).name)
        for folder in (marian.forward, marian.back)
    )
    copy = Pivot("French", *map(str, folders))
    assert [files(marian), files(copy)] == [1, 1]
    settings = [
        {"beam_size": 2},
        {"max_length": 7},
        {"batch_size": 8},
        {"bf16": True},
        {"shard_size": 8},
    ]
    assert [files(copy, **setting) for setting in settings] == [2, 3, 4, 5, 6]
    assert files(Pivot("fr", copy.forward, copy.back, forward_prefix="red ")) == 7
    words = json.loads(Path(copy.forward, "vocab.json").read_text())
    words["▁red"], words["▁big"] = words["▁big"], words["▁red"]
    Path(copy.forward, "vocab.json").write_text(json.dumps(words))
    assert files(copy) == 8


def test_models_are_freed_before_the_next_are_loaded(marian, tmp_path, monkeypatch):
    in_memory = []
    load = Translator.__init__

    def counted(self, *args, **kwargs):
        in_memory.append(sum(type(found) is MarianMTModel for found in gc.get_objects()))
        load(self, *args, **kwargs)

    monkeypatch.setattr(Translator, "__init__", counted)
    gc.collect()  # What other tests left.
    trip([marian, Pivot("French", marian.forward, marian.back)], tmp_path)
    assert in_memory == [0, 1, 0, 1]


def test_unfit_pivots_are_refused(marian, bart, tower_folders, tmp_path):
    def refused(message, *pivots, **settings):
        with pytest.raises(UserError, match=message):
            trip(list(pivots), tmp_path / "cache", **settings)
        assert not list(tmp_path.glob("cache/*.arrow"))

    def altered(name):
        return shutil.copytree(marian.forward, tmp_path / name)

    refused("Expected at least one pivot language, found none; give a pivot")
    refused("The pivot 'fr' is given twice; remove one", marian, marian)
    there = Pivot("fr", marian.forward, marian.forward)
    refused(
        "'fr' do not match: .* translates en to fr, .* en to fr; give a pair that goes there and "
        "back",
        there,
    )
    missing = str(tmp_path / "missing")
    refused(
        rf"'{missing}' cannot be loaded as a sequence-to-sequence model \(.*\); check the name, "
        rf"give",
        Pivot("fr", missing, missing),
    )
    encoder = str(tower_folders[0])
    refused(
        "is not a sequence-to-sequence model but of type bert; give one like",
        Pivot("fr", encoder, encoder),
    )
    refused(
        "has 32 positions, fewer than a max_length of 33; lower max_length", marian, max_length=33
    )

    pickled = altered("pickled")
    (pickled / "model.safetensors").unlink()
    torch.save(
        AutoModelForSeq2SeqLM.from_pretrained(marian.forward).state_dict(),
        pickled / "pytorch_model.bin",
    )
    message = (
        r"pickled' cannot be loaded .* \(.*no file named model.safetensors.*\).*a revision "
        r"that holds safetensors"
    )
    refused(message, Pivot("fr", str(pickled), marian.back))

    damaged = altered("damaged")
    (damaged / "model.safetensors").write_bytes(b"\0" * 99)
    refused("damaged' cannot be loaded", Pivot("fr", str(damaged), marian.back))

    incomplete = altered("incomplete")
    model = AutoModelForSeq2SeqLM.from_pretrained(marian.forward)
    model.save_pretrained(
        incomplete, state_dict={k: v for k, v in model.state_dict().items() if "decoder" not in k}
    )
    refused("lacks the weight 'model.decoder.layers.0", Pivot("fr", str(incomplete), marian.back))

    several = altered("several")
    words = json.loads((several / "vocab.json").read_text())
    codes = {">>cmn_Hans<<": words.pop("▁a"), ">>cmn_Hant<<": words.pop("▁the")}
    (several / "vocab.json").write_text(json.dumps(words | codes))
    message = (
        r"several languages \(>>cmn_Hans<<, >>cmn_Hant<<\); name one at the start of the prefix"
    )
    refused(message, Pivot("fr", str(several), marian.back))


def test_nothing_but_empty_round_trips_is_refused(marian, tmp_path):
    with pytest.raises(UserError, match="Every round trip is empty; check that"):
        trip([marian], tmp_path, ["with a dog", "with the bird on a house"])


def test_a_missing_package_is_named_with_its_extra(marian, tmp_path, monkeypatch):
    def absent(*args, **kwargs):
        raise ImportError(
            "\nMarianTokenizer requires the SentencePiece library but it was not found"
        )

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", absent)
    with pytest.raises(
        UserError,
        match=r"needs a package .* SentencePiece .* pip install 'st-jtcse\[translation\]'",
    ):
        trip([marian], tmp_path)


def test_a_revision_follows_the_hubs_name(tmp_path, monkeypatch):
    asked = []

    def offline(name, revision, trust_remote_code):
        assert trust_remote_code is False
        asked.append((name, revision))
        raise OSError("cannot be reached")

    monkeypatch.setattr(AutoConfig, "from_pretrained", offline)
    for name in ("org/opus@refs/pr/4", "org/opus"):
        with pytest.raises(
            UserError, match=rf"'{name}' cannot be loaded as .* \(cannot be reached\)"
        ):
            trip([Pivot("fr", name, name)], tmp_path)
    assert asked == [("org/opus", "refs/pr/4"), ("org/opus", None)]


def log_legs(set_attribute, log, pause=0.0):
    translate = Translator.translate

    def logged(self, texts):
        result = translate(self, texts)
        if self.source == "en":
            with log.open("a") as file:
                file.write(texts[0] + "\n")
            time.sleep(pause)
        return result

    set_attribute(Translator, "translate", logged)


def translate_logged(pivot, cache, log, pause=0.0, processes=1):
    """Translate 40 sentences in shards of four; a line in the log for every shard that is computed."""
    if processes > 1:
        torch.distributed.init_process_group("gloo")
    log_legs(setattr, log, pause)
    trip([pivot], cache, shard_size=4)
    if processes > 1:
        torch.distributed.destroy_process_group()


def only_file(folder):
    (path,) = folder.iterdir()  # No shard is left behind.
    return path


def test_killed_and_repeated_is_byte_identical_and_does_no_shard_twice(
    marian, tmp_path, monkeypatch
):
    trip([marian], tmp_path / "whole", shard_size=4)
    log = tmp_path / "cut.log"
    killed = start(translate_logged, marian, tmp_path / "cut", log, 0.3, said=tmp_path / "said.txt")
    while not log.exists() or len(log.read_text().splitlines()) < 4:
        assert killed.is_alive(), (tmp_path / "said.txt").read_text()
        time.sleep(0.02)
    killed.kill()
    killed.join()
    shards = list((tmp_path / "cut").glob("*.shards/*.arrow"))
    assert 3 <= len(shards) < 10
    log.unlink()
    log_legs(monkeypatch.setattr, log)
    trip([marian], tmp_path / "cut", shard_size=4)
    # The shard that was being computed when the process died is the only one to be computed again.
    assert len(log.read_text().splitlines()) == 10 - len(shards)
    assert only_file(tmp_path / "cut").read_bytes() == only_file(tmp_path / "whole").read_bytes()


def test_two_processes_write_the_file_of_one(marian, tmp_path):
    trip([marian], tmp_path / "one", shard_size=4)
    run_two(
        translate_logged, marian, tmp_path / "two", tmp_path / "two.log", 0.0, 2, folder=tmp_path
    )
    assert sorted((tmp_path / "two.log").read_text().splitlines()) == sorted(SENTENCES[::4])
    assert sha256(only_file(tmp_path / "two")) == sha256(only_file(tmp_path / "one"))
    assert only_file(tmp_path / "two").name == only_file(tmp_path / "one").name
