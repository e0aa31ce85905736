"""Tiny random models, a word-level tokenizer and short sentences; no network, nothing outside
tmp_path.
"""

import functools
import gc
import json
import logging
import os
import random
import signal
from importlib.metadata import entry_points
from pathlib import Path

import jinja2
import pytest
import torch
from hub_stand_in import HubStandIn
from huggingface_hub import close_session
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from threadpoolctl import threadpool_limits
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    AutoModel,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    T5EncoderModel,
)

from st_jtcse.errors import UserError
from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder

# Sums of floats depend on the number of threads; with xdist there is one for each worker anyway.
torch.set_num_threads(1)
threadpool_limits(1, "blas")
os.environ["OMP_NUM_THREADS"] = "1"
# One process runs hundreds of trainings: what they free goes back.
os.environ["ST_JTCSE_KEEP_MEMORY"] = "0"
# A shell that runs the tests in the background has them ignore Ctrl-C, and then all that they start
# would too.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Sentence-Transformers writes a card beside every checkpoint, and huggingface_hub compiles its
# template anew each time.
jinja2.Environment.compile = functools.lru_cache(jinja2.Environment.compile)


@pytest.fixture(scope="session", autouse=True)
def pages_without_curves():
    """A run's pictures have tests of their own, and cost more than a tiny training."""

    def picture(*given):
        raise UserError("no pictures")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("st_jtcse.reports.run_report.picture", picture)
        yield


def pytest_addoption(parser):
    """Let faults strike at every moment instead of some."""
    parser.addoption(
        "--all-faults",
        action="store_true",
        help="tests/faults: all, which takes a core a quarter of an hour",
    )


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--all-faults"):
        left_out = [item for item in items if item.get_closest_marker("all_faults")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish():
    """Keep the millions of objects that imports leave out of the collections that accelerate asks
    for at every turn.
    """
    gc.collect()
    gc.freeze()
    # A rehearsal asks for their number, and counting them takes longer than its step.
    count = gc.get_freeze_count()
    gc.get_freeze_count = lambda: count


WORDS = (
    "a the one two three man woman child dog cat bird horse runs walks sleeps eats plays reads on "
    "in under near "
    "street house river park table ball book apple red big small old slowly quickly not and with"
).split()


def command_of(name):
    """Return what runs `st-NAME`."""
    (script,) = entry_points(group="console_scripts", name=f"st-{name}")
    return script.load()


def make_tokenizer(words=WORDS):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {token: index for index, token in enumerate([*special, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=32,
    )


def make_config(family="bert", **changes):
    settings = dict(
        vocab_size=len(WORDS) + 5,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=40,
        pad_token_id=0,
    )
    return {"bert": BertConfig, "roberta": RobertaConfig}[family](**{**settings, **changes})


def make_encoder(seed, family="bert", **changes):
    torch.manual_seed(seed)
    model = AutoModel.from_config(make_config(family, **changes))
    # transformers draws weights of standard deviation 0.02: larger ones make differences visible.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


TOWER_SETTINGS = {
    "electra": {"embedding_size": 16},
    "albert": {"embedding_size": 16},
    # A window of two tokens on either side, in two layers of four.
    "modernbert": {
        "local_attention": 4,
        "cls_token_id": 2,
        "sep_token_id": 3,
        "bos_token_id": 2,
        "eos_token_id": 3,
    },
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "t5": {"d_kv": 8, "d_ff": 48},
}


def make_tower(kind, seed, **changes):
    """A tiny random encoder or decoder of a type that transformers knows."""
    sizes = make_config().to_dict()
    names = (
        "vocab_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
        "pad_token_id",
    )
    settings = {key: sizes[key] for key in names} | {"hidden_size": 32, "intermediate_size": 48}
    if kind == "distilbert":
        settings["hidden_dim"] = settings.pop("intermediate_size")
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, **settings | TOWER_SETTINGS.get(kind, {}) | changes)
    model = T5EncoderModel(config) if kind == "t5" else AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def checkpoint_activations(model):
    """Have them computed again in the backward pass; transformers 5.18 calls that by its older
    name.
    """
    (
        getattr(model, "activation_checkpointing_enable", None)
        or model.gradient_checkpointing_enable
    )()


def make_sentences(count, seed=0):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 12))) for _ in range(count)]


def save_encoder(folder: Path, seed, family="bert", words=WORDS, **changes):
    make_encoder(seed, family, **changes).save_pretrained(folder)
    make_tokenizer(words).save_pretrained(folder)
    return folder


def save_translator(folder: Path, seed):
    """A tiny random sequence-to-sequence model; seed 0 gives words for every sentence."""
    torch.manual_seed(seed)
    config = BartConfig(
        vocab_size=len(WORDS) + 5,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_position_embeddings=40,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
        decoder_start_token_id=2,
        forced_eos_token_id=3,
    )
    model = BartForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def save_language_model(folder: Path, seed, answers=("0.25", "0.75")):
    """A tiny random causal model that writes nothing but these two words."""
    torch.manual_seed(seed)
    tokenizer = make_tokenizer([*WORDS, *answers])
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
        direction = torch.randn(16)
        model.lm_head.weight.zero_()
        model.lm_head.weight[-2] = direction
        model.lm_head.weight[-1] = -direction
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tower_folders(tmp_path_factory):
    """Two plain BERT encoder folders of one shape."""
    root = tmp_path_factory.mktemp("towers")
    return save_encoder(root / "encoder_1", 1), save_encoder(root / "encoder_2", 2)


def make_pipeline(tower_folders, every=2, residual="stream", seed=0):
    """A twin in training form: encoder, pooler head, CLS pooling."""
    torch.manual_seed(seed)
    encoder = TwinCrossAttentionEncoder.from_towers(*tower_folders, every, residual)
    pooling = Pooling(encoder.get_embedding_dimension(), "cls")
    return SentenceTransformer(modules=[encoder, PoolerModulusHead(), pooling], device="cpu")


def training_arguments(folder, **changes):
    settings = dict(
        output_dir=str(folder),
        max_steps=6,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        seed=1,
        data_seed=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        logging_steps=1,
    )
    return SentenceTransformerTrainingArguments(**{**settings, **changes})


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """The Hub is out of reach, at once and without retries, also for processes that a test starts."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)


@pytest.fixture(autouse=True)
def logs_as_they_were():
    """A log level that a test leaves changed makes another fail, which one by the order; a first
    import may set it.
    """
    names = (
        "st_jtcse",
        "transformers",
        "huggingface_hub",
        "datasets",
        "sentence_transformers",
        "mteb",
        "py.warnings",
    )
    before = {name: level for name in names if (level := logging.getLogger(name).level)}
    yield
    assert {name: logging.getLogger(name).level for name in before} == before


@pytest.fixture
def unrehearsed(monkeypatch):
    """Runs begin with their first stage: what a rehearsal finds, and that it leaves no trace, is
    tested for itself.
    """
    monkeypatch.setattr("st_jtcse.training.runner.rehearse", lambda *given: [])
    monkeypatch.setattr("st_jtcse.training.sweep.rehearse", lambda *given: [])
    monkeypatch.setattr("st_jtcse.training.ahead.rehearse", lambda *given: [])


@pytest.fixture
def hub(offline, monkeypatch, tmp_path):
    """A Hub on loopback for the client in this process; for other processes there is
    hub.environment(home).
    """
    settings = {
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_TELEMETRY": True,
        "HF_HUB_CACHE": str(tmp_path / "hub_cache"),
        "HF_TOKEN_PATH": str(tmp_path / "no_token"),
    }
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    # The client keeps its connections and proxies from one test to the next.
    close_session()
    with HubStandIn() as hub:
        # What HF_ENDPOINT sets when huggingface_hub is imported, which it is already.
        settings["ENDPOINT"] = hub.endpoint
        settings["HUGGINGFACE_CO_URL_TEMPLATE"] = (
            hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        )
        for name, value in settings.items():
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
        monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", hub.endpoint)
        # transformers keeps a client of the endpoint that it met first.
        monkeypatch.setattr("transformers.utils.hub._hf_api", None, raising=False)
        yield hub
    close_session()


def make_model(folder, pooling="cls"):
    """A plain encoder folder as a SentenceTransformer."""
    encoder = Transformer(str(folder))
    return SentenceTransformer(
        modules=[encoder, Pooling(encoder.get_embedding_dimension(), pooling)], device="cpu"
    )


@pytest.fixture(scope="session")
def model(tower_folders):
    return make_model(tower_folders[0])


@pytest.fixture(scope="session")
def model_folders(tower_folders, tmp_path_factory):
    """Two saved models of one shape and different weights, in folders of one name."""
    folders = []
    for tower in tower_folders:
        folder = tmp_path_factory.mktemp("models") / "mine"
        make_model(tower).save_pretrained(str(folder), create_model_card=False)
        folders.append(folder)
    return folders


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def make_pairs(count, seed, **more):
    draw = random.Random(seed)
    first, second = make_sentences(count, seed), make_sentences(count, seed + 100)
    return [
        {"sentence1": a, "sentence2": b, "score": round(draw.uniform(0, 5), 1), **more}
        for a, b in zip(first, second)
    ]


def stage_record(name, **told):
    """What a finished stage's record says, as little as 0.1.0 did."""
    record = {
        "name": name,
        "environment": {"torch": "2.13.0", "threads": 1},
        "seed": 1,
        "loss": {"type": "SimCSELoss"},
        "data_sha256": {},
        "spearman_start": {},
        "steps": 2,
        "seconds": 1.0,
        "best_step": 2,
        "parameters": 1000,
        "gmac": 0.0,
        "spearman": {},
        "weights_sha256": {"model.safetensors": "0" * 64},
    }
    return record | told


def run_results(recipe, seed, *stages, **told):
    """What a run's results.json says."""
    record = {
        "recipe": recipe,
        "seed": seed,
        "finished": True,
        "written": "2026-11-22T06:03:11Z",
        "environment": {"torch": "2.13.0", "threads": 1},
        "stages": list(stages),
    }
    return record | told


def make_labelled(count, seed, classes=(0, 1)):
    """Sentences whose class is told by their last word, so that there is something to learn."""
    return [
        {
            "text": f"{sentence} {('dog', 'table', 'red')[number % len(classes)]}",
            "label": classes[number % len(classes)],
        }
        for number, sentence in enumerate(make_sentences(count, seed))
    ]


@pytest.fixture(scope="session")
def evaluation_data(tmp_path_factory):
    """STS12 with two subsets, STS-B and SICK-R without; CR, TREC and MRPC."""
    folder = tmp_path_factory.mktemp("data")
    write_rows(
        folder / "sts" / "sts12.test.jsonl",
        make_pairs(20, 1, subset="MSRpar") + make_pairs(12, 2, subset="OnWN"),
    )
    write_rows(folder / "sts" / "stsb.test.jsonl", make_pairs(16, 3))
    write_rows(folder / "sts" / "sickr.test.jsonl", make_pairs(15, 4))
    write_rows(folder / "transfer" / "cr.jsonl", make_labelled(60, 5))
    for split, count in (("train", 60), ("test", 18)):
        write_rows(
            folder / "transfer" / f"trec.{split}.jsonl",
            make_labelled(count, count, ("NUM", "LOC", "HUM")),
        )
        pairs = [
            {"sentence1": row["text"], "sentence2": other["text"], "label": row["label"]}
            for row, other in zip(make_labelled(count, count), make_labelled(count, count + 1))
        ]
        write_rows(folder / "transfer" / f"mrpc.{split}.jsonl", pairs)
    return folder


@pytest.fixture
def project(tmp_path):
    """A folder of two encoders, ``a`` and ``b``, and of a text."""
    save_encoder(tmp_path / "a", 1, num_hidden_layers=2)
    save_encoder(tmp_path / "b", 2, num_hidden_layers=2)
    (tmp_path / "text.txt").write_text("\n".join(make_sentences(40)) + "\n")
    return tmp_path
