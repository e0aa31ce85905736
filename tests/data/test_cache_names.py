"""Settings written out by hand: a file that an earlier version made is found by their hash, and
must stay valid.
"""

import hashlib
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import make_model, make_sentences, save_language_model, save_translator
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
)

from st_jtcse.data.teachers import with_teacher_labels
from st_jtcse.hashing import embedding_sha256, weights_sha256
from st_jtcse.papers.data.judge import Judge, judged_scores
from st_jtcse.papers.data.translation import Pivot, round_trip

SENTENCES = make_sentences(3)


def sha256(text):
    return hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()


def settings_in(cache, kind):
    """Return what the one file of the cache says of itself, after checking that its name follows
    from it.
    """
    (path,) = cache.iterdir()
    with pa.ipc.open_stream(str(path)) as stream:
        text = stream.schema.metadata[b"st_jtcse"].decode()
    assert path.name == f"{kind}-{sha256(text)[:16]}.arrow"
    assert text == json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False)
    return json.loads(text)


def plain(config):
    kept = {
        key: value
        for key, value in config.items()
        if key not in ("_name_or_path", "transformers_version")
    }
    return json.dumps(kept, sort_keys=True, default=str)


def test_a_judges_settings(tmp_path):
    folder = save_language_model(tmp_path / "judge", 1)
    pairs = [("a dog é", "a cat"), ("one man", "two men")]
    prompt = "{sentence1} {sentence2}"
    judged_scores(
        pairs, Judge(str(folder), prompt, max_new_tokens=2, batch_size=3), tmp_path / "cache"
    )
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    assert settings_in(tmp_path / "cache", "judge") == {
        "pairs": sha256('["a dog é", "a cat"]\n["one man", "two men"]'),
        "weights": weights_sha256(model),
        "config": plain(model.config.to_dict()),
        "vocabulary": sha256(json.dumps(tokenizer.get_vocab(), sort_keys=True)),
        "chat_template": None,
        "prompt": prompt,
        "max_new_tokens": 2,
        "batch_size": 3,
        "rows": 2,
        "shard_size": 1000,
    }


def fingerprint_by_hand(folder, prefix, search):
    model, tokenizer = (
        AutoModelForSeq2SeqLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    tokens = (
        "decoder_start_token_id",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "forced_bos_token_id",
    )
    kept = {
        name: getattr(model.generation_config, name, None)
        for name in (*tokens, "bad_words_ids", "renormalize_logits")
    }
    whole = weights_sha256(model) + plain(model.config.to_dict())
    whole += plain(GenerationConfig(**kept, do_sample=False, **search).to_dict())
    whole += json.dumps({"limit": tokenizer.model_max_length, "prefix": prefix})
    digest = hashlib.sha256(whole.encode())
    with tempfile.TemporaryDirectory() as saved:
        tokenizer.save_pretrained(saved)
        for path in sorted(Path(saved).iterdir()):
            content = path.read_bytes()
            if path.name == "tokenizer_config.json":
                kept = json.loads(content)
                for place in ("name_or_path", "is_local", "local_files_only"):
                    kept.pop(place, None)
                content = json.dumps(kept, sort_keys=True).encode()
            digest.update(path.name.encode() + hashlib.sha256(content).digest())
    return digest.hexdigest()


def test_a_translations_settings(tmp_path):
    forward, back = save_translator(tmp_path / "forward", 0), save_translator(tmp_path / "back", 6)
    data = Dataset.from_dict({"sentence": SENTENCES})
    pivot = Pivot("xx", str(forward), str(back), "red ")
    round_trip(
        data, "digest", [pivot], "pair", tmp_path / "cache", beam_size=2, max_length=8, batch_size=5
    )
    search = {"num_beams": 2, "max_new_tokens": 8}
    assert settings_in(tmp_path / "cache", "translation") == {
        "sentences": "digest",
        "forward": fingerprint_by_hand(forward, "red ", search),
        "back": fingerprint_by_hand(back, "", search),
        "beam_size": 2,
        "max_length": 8,
        "batch_size": 5,
        "bf16": False,
        "rows": 3,
        "shard_size": 1000,
    }


@pytest.mark.parametrize("form", ["sum", "concatenation"])
def test_teachers_settings(tower_folders, tmp_path, form):
    models = [make_model(folder) for folder in tower_folders]
    data = Dataset.from_dict({"sentence": SENTENCES})
    with_teacher_labels(data, "digest", models, (0.25, 2), tmp_path, form=form)
    assert settings_in(tmp_path, "teacher") == {
        "sentences": "digest",
        "teachers": [embedding_sha256(model) for model in models],
        "weights": [0.25, 2],
        "form": form,
        "batch_size": 64,
        "rows": 3,
        "shard_size": 10000,
    }
