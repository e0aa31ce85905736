"""What a rehearsal takes in place of a recipe's: small models of random weights, and a few rows of
a stage's data.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import transformers
from datasets import Dataset
from huggingface_hub import snapshot_download
from transformers import AutoModel

from st_jtcse import data
from st_jtcse.data.column_names import LABELLED
from st_jtcse.modules import loading
from st_jtcse.modules.model_folders import CONFIG, located, read_listing
from st_jtcse.modules.shared_words import WORDS_OF_WHOLE
from st_jtcse.modules.whole_models import within_files
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.stage_inputs import Inputs

ROWS = 4
# Words that are kept, as many as no other table has rows; the others share their vectors.
WORDS = 1009
# Bytes of weights up to which a model stands for itself.
_SMALL = 16 * 2**20
_DEPTHS = ("num_hidden_layers", "n_layers", "num_layers", "n_layer")
_WEIGHTS = ("model*.safetensors", "pytorch_model*", "tf_model*", "flax_model*", "rust_model*")
# What a Hub model comes with beside its weights and is not needed either.
_OTHER_FORMS = ("onnx/*", "openvino/*", "*.onnx", "*.gguf", "*.h5", "*.ot", "*.msgpack", "coreml/*")


def small_copy(
    name: str,
    target: Path,
    depth: Callable[[int], int],
    *,
    all_words: bool = False,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> str:
    """Save a small model of random weights like another one, and return its folder.

    A model that is small itself, runs code of its own, or is of a form that nothing is known about
    stands for itself.

    Args:
        name: ``embedded``, a folder or a Hub id.
        target: The folder to make.
        depth: From the model's layers to those of the small one.
        all_words: Whether every word keeps a vector of its own.
        revision: Commit, tag or branch on the Hub.
        trust_remote_code: Whether code that comes with the model may run.

    Raises:
        UserError: Its configuration cannot be read.
    """
    place = located(name)
    if _is_small(Path(place)) or (Path(place).is_dir() and not Path(place, CONFIG).is_file()):
        return place
    config = loading.load_config(place, revision=revision, trust_remote_code=trust_remote_code)
    if getattr(config, "auto_map", None) and trust_remote_code:
        return place
    try:
        model = _shallow(config, place, depth, all_words)
        _copy_without_weights(place, revision, target)
        model.save_pretrained(target)
    except Exception:  # Whatever is unusual about the model, its own loader says it better.
        shutil.rmtree(target, ignore_errors=True)
        return place
    return str(target)


def _shallow(config: Any, place: str, depth: Callable[[int], int], all_words: bool) -> Any:
    """Return a model of random weights, of fewer layers and words than a configuration says."""
    small = type(config).from_dict(_cut(config.to_dict(), depth, all_words))
    setattr(small, WORDS_OF_WHOLE, getattr(config, "vocab_size", None))
    architecture = getattr(transformers, (config.architectures or [""])[0], None)
    with within_files(place):
        if architecture is not None:
            return architecture(small)
        return AutoModel.from_config(small, trust_remote_code=False)


def _copy_without_weights(place: str, revision: str | None, target: Path) -> None:
    """Copy the files of a folder or Hub id, and the folders of its modules."""
    skipped, folder = [*_WEIGHTS, *_OTHER_FORMS], Path(place)
    if not folder.is_dir():
        folder = Path(snapshot_download(place, revision=revision, ignore_patterns=skipped))
    target.mkdir(parents=True)
    for path in folder.iterdir():
        if path.is_file() and not any(map(path.match, [*skipped, ".*"])):
            shutil.copyfile(path, target / path.name)
    for entry in read_listing(folder):
        if entry["path"] and (folder / entry["path"]).is_dir():
            shutil.copytree(folder / entry["path"], target / entry["path"], dirs_exist_ok=True)


def _is_small(folder: Path) -> bool:
    weights = [path for pattern in _WEIGHTS for path in folder.glob(pattern)]
    return bool(weights) and sum(path.stat().st_size for path in weights) <= _SMALL


def _cut(settings: dict[str, Any], depth: Callable[[int], int], all_words: bool) -> dict[str, Any]:
    """Return a configuration, with those inside it, of fewer layers and words."""
    layers = next((settings[key] for key in _DEPTHS if key in settings), 0)

    def cut(key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return _cut(value, depth, all_words)
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return [_cut(item, depth, all_words) for item in value]
        if key in _DEPTHS and isinstance(value, int):
            return depth(value)
        if isinstance(value, list) and layers and len(value) == layers:
            return value[: depth(layers)]
        if all_words or not isinstance(value, int):
            return value
        if key == "vocab_size":
            return min(WORDS, value)
        if key.endswith("_token_id") and value >= WORDS:
            return 0
        return value

    return {key: cut(key, value) for key, value in settings.items()}


def few_inputs(stage: StageSpec, inputs: Inputs | None, count: int = ROWS) -> Inputs:
    """Return inputs of `count` rows: the first, of two classes where there are; four made up where
    none are read.
    """
    read = None if inputs is None else inputs.sentences
    rows = _made_up(stage) if read is None else _first(read.dataset, count)
    # Labelled: rows that are complete as they are.
    return replace(inputs or Inputs(None, {}, {}), sentences=data.Labelled(rows, 0, "", {}))


def few_pairs(rows: Dataset) -> data.Pairs:
    """Make up graded pairs of some rows, to evaluate on."""
    texts = rows[rows.column_names[0]][:ROWS]
    if isinstance(texts[0], str):
        texts = [f"{text} {number}" for number, text in enumerate(texts)]
    return data.Pairs(texts, texts[::-1], [float(number) for number in range(len(texts))], "")


def _first(dataset: Dataset, count: int) -> Dataset:
    if "label" not in dataset.column_names:
        return dataset.select(range(min(count, len(dataset))))
    # Two of each of two labels, for losses that compare rows of one class with those of another.
    found: dict[Any, list[int]] = {}
    for number, label in enumerate(islice(dataset["label"], 10_000)):
        if (label in found or len(found) < 2) and len(
            rows := found.setdefault(label, [])
        ) < ROWS // 2:
            rows.append(number)
        if sum(map(len, found.values())) == ROWS:
            break
    chosen = {number for rows in found.values() for number in rows}
    others = (number for number in range(len(dataset)) if number not in chosen)
    return dataset.select(sorted([*chosen, *islice(others, count - len(chosen))]))


def _made_up(stage: StageSpec) -> Dataset:
    texts = [f"{'one two' if number % 2 else 'three four'} {number}" for number in range(ROWS)]
    if stage.data is None or stage.data.pairs is None:
        return Dataset(pa.table({"sentence": texts}))
    kind = stage.data.labels
    names = stage.data.pairs[0].columns or LABELLED["scores" if stage.data.bins else kind]
    count = len(names) - (kind != "none")
    columns: dict[str, Any] = {
        f"sentence{number}": texts[number:] + texts[:number] for number in range(1, count + 1)
    }
    if kind == "scores":
        columns["label"] = pa.array([0.0, 0.25, 0.5, 1.0], pa.float32())
    elif kind == "classes":
        columns["label"] = pa.array([0, 1, 0, 1], pa.int64())
    return Dataset(pa.table(columns))
