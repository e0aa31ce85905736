"""Loads the model to evaluate, and tells two models apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.util import is_sentence_transformer_model

from st_jtcse import embedded
from st_jtcse.embedding_hash import embedding_sha256
from st_jtcse.errors import UserError
from st_jtcse.hashing import weight_files_sha256
from st_jtcse.modules.listing import MODULES, read_listing

PoolingName = Literal["cls", "mean"]


@dataclass(frozen=True)
class Evaluated:
    """A loaded model.

    Args:
        model: The model.
        name: As the user wrote it.
        sha256: Hash of all that decides its embeddings.
        files: Hash of each weight file of a model in a folder, by its path there.
    """

    model: SentenceTransformer
    name: str
    sha256: str
    files: dict[str, str] = field(default_factory=dict)


def load_model(
    name: str,
    *,
    pooling: PoolingName | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    device: str | None = None,
) -> Evaluated:
    """Load a model for evaluation.

    Args:
        name: ``embedded``, a folder or a Hub id.
        pooling: Pool the encoder's last layer so instead of by the model's own modules; needed by a plain encoder,
            which has none.
        revision: Commit, tag or branch on the Hub.
        trust_remote_code: Whether code stored beside the weights may run.
        device: Where; None for Sentence-Transformers' choice.

    Raises:
        UserError: It cannot be loaded, or is a plain encoder and `pooling` is not given.
    """
    place = embedded.place(name)
    hub: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    if Path(place).exists():
        _check_folder(Path(place))
    try:
        if pooling is not None:
            encoder = Transformer(place, model_kwargs=dict(hub), config_kwargs=dict(hub), processor_kwargs=dict(hub))
            model = SentenceTransformer(
                modules=[encoder, Pooling(encoder.get_embedding_dimension(), pooling)], device=device
            )
        elif is_sentence_transformer_model(place, revision=revision):
            model = SentenceTransformer(place, device=device, **hub)
        elif Path(place).exists():
            raise UserError(
                f"{place} has no modules.json: it is a plain encoder, and nothing says how its tokens make an "
                "embedding; add --pooling cls or --pooling mean."
            )
        else:
            raise OSError("no Sentence-Transformers model of this name; a plain encoder needs --pooling")
    except UserError:
        raise
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise UserError(_refusal(name, error)) from error
    files = weight_files_sha256(Path(place)) if Path(place).is_dir() else {}
    return Evaluated(model, name, embedding_sha256(model), files)


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; give the folder of a saved model.")
    if entries := read_listing(folder):
        parts = [folder / entry["path"] for entry in entries]
        for entry, part in zip(entries, parts):
            # Normalisation has nothing to save, and git keeps no empty folder.
            if not part.is_dir() and not entry["type"].endswith("Normalize"):
                raise UserError(f"{part} does not exist, but {folder / MODULES} names it; copy the whole folder.")
        if (parts[0] / "config.json").is_file():
            _check_weights(parts[0])
    elif not (folder / "config.json").is_file():
        raise UserError(f"{folder} holds neither {MODULES} nor config.json; give the folder of a saved model.")
    else:
        _check_weights(folder)


def _check_weights(folder: Path) -> None:
    if not [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]:
        raise UserError(f"{folder} holds a configuration but no weights (model.safetensors); copy the whole folder.")


def _refusal(name: str, error: Exception) -> str:
    reason = " ".join(str(error).split())
    if Path(name).exists() or name == embedded.NAME:
        return f"The model in {name} cannot be loaded: {reason[:600]}"
    return (
        f"The model {name!r} cannot be loaded: it is no local folder, and the Hub gave no such model or cannot be "
        f"reached ({reason[:200]}); check the name, or give a folder."
    )
