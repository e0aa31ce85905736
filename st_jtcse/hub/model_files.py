"""Which files of a folder make up a saved model, and are pushed; the folder may hold anything
besides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from st_jtcse.errors import CodeNotTrusted, UserError
from st_jtcse.evaluation.results import RESULTS
from st_jtcse.hub.card_results import EVALUATION, TRAINING_RECORD
from st_jtcse.hub.cards import CARD
from st_jtcse.hub.model_form import model_form, read_json
from st_jtcse.modules.loading import load_cross_encoder, load_encoder, load_sentence_transformer
from st_jtcse.modules.model_folders import ADAPTER, CONFIG, MODULES, read_listing
from st_jtcse.modules.whole_models import fault_of

# The Hub takes no file above this: https://huggingface.co/docs/hub/storage-limits.
LARGEST_FILE = 50 * 10**9
# As transformers, Sentence-Transformers, PEFT and this package name what they save.
MODEL_FILES = re.compile(
    r"(LICENSE|NOTICE)(\.\w+)?|[\w-]+\.safetensors(\.index\.json)?"
    r"|(config(_sentence_transformers)?|(sentence_\w+|generation|adapter|tokenizer|cnn|lstm|wordembedding)_config"
    r"|(video_)?(pre)?processor_config|multi_tokenizer_ensemble|modules|router_config)\.json"
    r"|(tokenizer|special_tokens_map|added_tokens|vocab|chat_template)\.json|vocab\.txt|merges\.txt|bpe\.codes"
    r"|(tokenizer|spiece|spm|sentencepiece(\.bpe)?)\.model|chat_template\.jinja"
    r"|(modeling|configuration|tokenization|processing)_\w+\.py"
)
_EVALUATION = re.compile(rf"{re.escape(RESULTS)}|results\.md|index\.html|[\w.-]+\.(png|svg)")
_EXPORTS = re.compile(r"(onnx|openvino)/[\w.-]+\.(onnx|onnx_data|xml|bin)")
_MEMBER = re.compile(r"member_[0-9]+")
_HIDDEN = re.compile(r"\.|checkpoint-")


@dataclass
class ModelFiles:
    """What a folder holds."""

    # Files of the model by path, with their sizes in bytes.
    sent: dict[str, int] = field(default_factory=dict)
    # Paths of other files; hidden ones and checkpoints go without saying.
    left_out: list[str] = field(default_factory=list)

    @property
    def note(self) -> str | None:
        """A sentence on what is left out, None if nothing is."""
        if not self.left_out:
            return None
        shown, more = ", ".join(self.left_out[:8]), len(self.left_out) - 8
        if more > 0:
            shown = f"{shown} and {more} more"
        return f"Not sent, because it is not part of a model: {shown}."


def files_to_push(folder: Path) -> ModelFiles:
    """Find the files of a saved model.

    Raises UserError where it is no folder of a saved model, or holds a file that others could not
    use or the Hub would not take, or a link to somewhere else in its place.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give the folder of a saved model.")
    found = ModelFiles()
    named = _named_files(folder)
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        is_link, is_hidden = path.is_symlink(), any(map(_HIDDEN.match, parts))
        if is_hidden or (path.is_dir() and not is_link):
            continue
        name = "/".join(parts)
        if not _is_of_model(parts, named) or not (path.is_file() or is_link):
            found.left_out.append(name)
            continue
        if is_link:
            _check_link(path, folder)
        found.sent[name] = path.stat().st_size
    if CONFIG not in found.sent and MODULES not in found.sent:
        raise UserError(
            f"{folder} holds neither {MODULES} nor {CONFIG}; give the folder of a saved model."
        )
    if not any(name.endswith(".safetensors") for name in found.sent):
        raise UserError(
            f"{folder} holds no weights (*.safetensors); give the folder of a model that is saved "
            "whole."
        )
    large = next((name for name, size in found.sent.items() if size > LARGEST_FILE), None)
    if large is not None:
        raise UserError(
            f"{folder / large} has {found.sent[large] / 1e9:.0f} GB, and the Hub takes files up to "
            f"{LARGEST_FILE / 1e9:.0f} GB; save the model with a smaller max_shard_size."
        )
    return found


def _check_link(path: Path, folder: Path) -> None:
    if not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):
        raise UserError(
            f"{path} is a link that leaves the model's folder; put the file itself in its place."
        )


def check_whole(folder: Path, files: ModelFiles) -> None:
    """Refuse with a UserError a model that others could not load as it is meant."""
    for name in files.sent:
        if fault := fault_of(folder / name):
            raise UserError(f"{folder / name} {fault}; save the model again.")
    if ADAPTER in files.sent:
        base = read_json(folder / ADAPTER).get("base_model_name_or_path")
        if not isinstance(base, str) or not base or Path(base).exists():
            raise UserError(
                f"{folder} holds an adapter for a model that only this machine has; merge the two, "
                "or push that model, name it in the adapter, and push again."
            )
        return  # Its base is on the Hub.
    try:
        if model_form(folder).cross_encoder:
            load_cross_encoder(folder)
        elif MODULES in files.sent:
            load_sentence_transformer(folder, device="cpu")
        else:
            load_encoder(folder)
    except CodeNotTrusted:
        # It came with code, which a push has no need to run; the files alone are sound.
        pass


def _named_files(folder: Path) -> set[str]:
    """Return the folders of a model's modules, and the files of code that its
    configurations name.
    """
    listing = read_listing(folder)
    classes = [entry["type"] for entry in listing]
    for path in (folder / CONFIG, folder / "tokenizer_config.json"):
        classes += _strings(read_json(path).get("auto_map"))
    folders = {str(entry["path"]).split("/")[0] for entry in listing} - {"", ".", ".."}
    return folders | {f"{each.split('.')[0]}.py" for each in classes}


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    found: list[str] = []
    for part in value if isinstance(value, list) else ():
        found += _strings(part)
    return found


def _is_of_model(parts: tuple[str, ...], named: set[str]) -> bool:
    *folders, name = parts
    if folders == [EVALUATION]:
        return _EVALUATION.fullmatch(name) is not None
    if not folders and name in (CARD, TRAINING_RECORD, *named):
        return True
    if _EXPORTS.fullmatch("/".join(parts)):
        return True
    is_inside = not folders or folders[0] in named or _MEMBER.fullmatch(folders[0])
    return bool(is_inside and MODEL_FILES.fullmatch(name))
