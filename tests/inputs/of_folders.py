"""Folders of saved models with one thing changed: a value of a JSON file, or a whole file."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from conftest import make_model, make_pipeline, make_sentences, make_tokenizer, save_encoder
from hypothesis import strategies as st
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Normalize,
    StaticEmbedding,
)

from st_jtcse.modules import (
    AttentionPooling,
    MultiTokenizerEnsemble,
    ensemble_of,
    load_sentence_transformer,
    save_for_inference,
)
from st_jtcse.modules.loading import load_cross_encoder, pooling_of

VALUES = [
    None,
    [],
    {},
    "",
    "nonsense",
    "x" * 5000,
    "../..",
    -1,
    0,
    1,
    3,
    0.5,
    10**9,
    10**30,
    float("nan"),
    True,
    False,
    [1],
    [[]],
    ["a", "b"],
    {"a": 1},
]
REMOVED = object()


def empty(path):
    path.write_bytes(b"")


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path):
    content = bytearray(path.read_bytes())
    for place in range(0, len(content), max(len(content) // 7, 1)):
        content[place] ^= 0x55
    path.write_bytes(bytes(content))


def make_folder(path):
    path.unlink()
    path.mkdir()


def linked_to(target):
    def link(path):
        path.unlink()
        path.symlink_to(target)

    return link


def link_to_itself(path):
    path.unlink()
    path.symlink_to(path)


def make_pipe(path):
    path.unlink()
    os.mkfifo(path)


# What can happen to a whole file.
FATES = {
    "removed": Path.unlink,
    "empty": empty,
    "cut in half": halve,
    "garbled": garble,
    "a folder": make_folder,
    "a link to nowhere": linked_to("/nonexistent/file"),
    "a link to itself": link_to_itself,
    "a link to zeros": linked_to("/dev/zero"),
    "a pipe": make_pipe,
    "null": lambda path: path.write_text("null"),
    "nested too deep": lambda path: path.write_text("[" * 100_000),
}


@dataclass(frozen=True)
class Change:
    """One thing that is changed in a folder."""

    family: str
    file: str
    place: tuple = ()  # keys and numbers that lead to a value of a JSON file
    value: object = None  # the value put there; REMOVED for none
    fate: str = ""  # what happens to the whole file instead

    def apply(self, folder):
        path = folder / self.file
        if self.fate:
            FATES[self.fate](path)
            return
        tree = [json.loads(path.read_text(encoding="utf-8"))]
        holder, key = tree, 0
        for part in self.place:
            holder, key = holder[key], part
        if self.value is REMOVED:
            del holder[key]
        else:
            holder[key] = self.value
        path.write_text(json.dumps(tree[0]) if tree else "", encoding="utf-8")

    def __repr__(self):
        place = ".".join(map(str, self.place))
        value = "removed" if self.value is REMOVED else repr(self.value)[:30]
        return f"<{self.family}/{self.file} {self.fate or f'{place}: {value}'}>"


def places(value, place=()):
    """Yield the way to each value in a tree; of words and their numbers the first few only."""
    yield place
    parts = value.items() if isinstance(value, dict) else ()
    parts = enumerate(value) if isinstance(value, list) else parts
    for number, (key, part) in enumerate(parts):
        if number < 40 or not isinstance(part, int):
            yield from places(part, (*place, key))


def save_families(root):
    """Save a tiny model of each family, and return their folders by name."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 8}
    plain = [save_encoder(root / f"plain{number}", number, **sizes) for number in (1, 2)]
    base = make_model(plain[0], "mean")
    dense = Dense(8, 4)
    families = {
        "st": SentenceTransformer(
            modules=[base[0], base[1], dense, Normalize()], prompts={"query": "the "}, device="cpu"
        ),
        "twin": make_pipeline(plain),
        "ensemble": ensemble_of(plain, pooling="cls"),
        "several": SentenceTransformer(
            modules=[MultiTokenizerEnsemble([base, make_model(plain[1], "cls")])], device="cpu"
        ),
        "attention": SentenceTransformer(modules=[base[0], AttentionPooling(8)], device="cpu"),
        "first_last": SentenceTransformer(
            modules=[Transformer(str(plain[0])), *pooling_of(Transformer(str(plain[0])), "cls")],
            device="cpu",
        ),
        "static": SentenceTransformer(
            modules=[StaticEmbedding(make_tokenizer().backend_tokenizer, embedding_dim=8)],
            device="cpu",
        ),
    }
    for name, model in families.items():
        save_for_inference(model, root / name, create_model_card=False)
    CrossEncoder(str(plain[0]), num_labels=1, device="cpu").save_pretrained(str(root / "cross"))
    return {name: root / name for name in families} | {"cross": root / "cross", "plain": plain[0]}


def files_of(folder):
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


@st.composite
def changes(draw, families, names):
    """One change of one of these families."""
    family = draw(st.sampled_from(sorted(names)))
    file = draw(st.sampled_from(files_of(families[family])))
    if not file.endswith(".json") or draw(st.integers(0, 3)) == 0:
        return Change(family, file, fate=draw(st.sampled_from(sorted(FATES))))
    tree = json.loads((families[family] / file).read_text(encoding="utf-8"))
    place = draw(st.sampled_from(list(places(tree))))
    return Change(family, file, place, draw(st.sampled_from([REMOVED, *VALUES])))


TEXTS = make_sentences(3)


def load(family, folder):
    """Load a model as commands do, and have it read something."""
    if family == "cross":
        found = load_cross_encoder(folder).predict([(TEXTS[0], TEXTS[1])])
    else:
        how = {"pooling": "mean"} if family == "plain" else {}
        model = load_sentence_transformer(folder, device="cpu", **how)
        found = model.encode(TEXTS, show_progress_bar=False)
    return found


def changed_copy(families, change, target):
    """Copy a family's folder and change it."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(families[change.family], target)
    change.apply(target)
    return target
