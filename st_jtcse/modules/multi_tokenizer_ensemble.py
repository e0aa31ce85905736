"""An ensemble of whole models, each with a tokenizer of its own, and the right ensemble for any
members.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from functools import reduce
from typing import Any, Self

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import InputModule, Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch import nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from st_jtcse.errors import UserError
from st_jtcse.modules.ensemble_encoder import EnsembleEncoder
from st_jtcse.modules.inference import save_for_inference
from st_jtcse.modules.joining import tokenizer_difference, told_by_the_user
from st_jtcse.modules.loading import load_sentence_transformer
from st_jtcse.modules.saved_form import SavedForm
from st_jtcse.modules.whole_models import check_length
from st_jtcse.pooling_names import PoolingName
from st_jtcse.towers.modeling_ensemble_encoder import check_weights
from st_jtcse.towers.modeling_tower_pooling import SumConfig
from st_jtcse.wording import shown

_PART_KWARGS = ("model_kwargs", "processor_kwargs", "config_kwargs")


class MultiTokenizerEnsemble(InputModule):
    r"""Weighted sum of the embeddings of whole models, :math:`\sum_k w_k e_k`, each with its own
    tokenizer and pooling.

    Saved, each member is a model in a folder of its own. Sentence-Transformers loads the whole with
    ``SentenceTransformer(path, trust_remote_code=True)`` where this package is installed; encoders
    that share a tokenizer need neither as an :class:`~st_jtcse.modules.EnsembleEncoder`.

    Args:
        members: The models, which are not copied.
        weights: Factor w_k of each member; 1.0 by default.

    Raises:
        UserError: There is no member, the weights do not match them, the embeddings' sizes differ,
            or a member cuts its embeddings, which it would not do when loaded again.

    Example:
        ::

            from sentence_transformers import SentenceTransformer
            from st_jtcse.modules import MultiTokenizerEnsemble, save_for_inference

            members = [
                SentenceTransformer("path/to/encoder_1"),
                SentenceTransformer("path/to/encoder_2"),
            ]
            model = SentenceTransformer(modules=[MultiTokenizerEnsemble(members, [0.3, 0.7])])
            save_for_inference(model, "my-ensemble")
            model = SentenceTransformer("my-ensemble", trust_remote_code=True)

    References:
        JTCSE (Zong et al.), fusion with another unsupervised checkpoint, RoBERTa towers.
    """

    # The model's own config.json stays free for what other libraries look for there.
    config_file_name = "multi_tokenizer_ensemble.json"
    config_keys = ["weights"]  # noqa: RUF012  # ST's own spelling of this attribute

    def __init__(
        self, members: Sequence[SentenceTransformer], weights: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        with told_by_the_user():
            self.weights = check_weights(weights, len(members))
        sizes = [member.get_embedding_dimension() for member in members]
        for number, (size, member) in enumerate(zip(sizes, members), start=1):
            if size != sizes[0]:
                raise UserError(
                    f"The members' embeddings differ in size: {sizes[0]} in the first, {size} in "
                    f"no. {number}; a sum needs one size."
                )
            if member.truncate_dim is not None:
                raise UserError(
                    f"Member no. {number} cuts its embeddings to {member.truncate_dim} "
                    "(truncate_dim), which is not saved with it; load it without, and cut the "
                    "ensemble's."
                )
        # Typed as Any: nn.ModuleList forgets what it holds.
        self.members: Any = nn.ModuleList(members)
        self.forward_kwargs = {key for member in members for key in member.get_model_kwargs()}

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Tokenise for each member; a member's features carry its number, as in
        ``member_1_input_ids``.
        """
        features: dict[str, Any] = {}
        for number, member in enumerate(self.members, start=1):
            # A member's `encode` would use its default prompt too.
            own_prompt = prompt
            if prompt is None:
                own_prompt = member.prompts.get(member.default_prompt_name)
            own = member.preprocess(inputs, prompt=own_prompt, **kwargs)
            features |= {f"{_name(number)}_{key}": value for key, value in own.items()}
        return features

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add ``sentence_embedding``, (B, H)."""
        parts = []
        for number, (member, weight) in enumerate(zip(self.members, self.weights), start=1):
            prefix = f"{_name(number)}_"
            own = {
                key.removeprefix(prefix): value
                for key, value in features.items()
                if key.startswith(prefix)
            }
            parts.append(weight * member(own, **kwargs)["sentence_embedding"])
        features["sentence_embedding"] = reduce(operator.add, parts)
        return features

    def get_embedding_dimension(self) -> int | None:
        """Return H."""
        return self.members[0].get_embedding_dimension()

    @property
    def max_seq_length(self) -> int | None:
        """Longest input in tokens of the member that takes the least; setting it sets every
        member's.
        """
        lengths = [member.max_seq_length for member in self.members]
        return min((length for length in lengths if length is not None), default=None)

    @max_seq_length.setter
    def max_seq_length(self, value: int | None) -> None:
        for member in self.members:
            member.max_seq_length = value

    def save(
        self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any
    ) -> None:
        """Write the weights, and each member as a model that loads alone."""
        self.save_config(output_path)
        for number, member in enumerate(self.members, start=1):
            folder = os.path.join(output_path, _name(number))
            save_for_inference(
                member, folder, create_model_card=False, safe_serialization=safe_serialization
            )

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", *args: Any, **kwargs: Any) -> Self:
        """Load the members and their weights; the arguments are those of SentenceTransformer."""
        hub = {
            key: kwargs[key]
            for key in ("token", "cache_folder", "revision", "local_files_only")
            if key in kwargs
        }
        config = cls.load_config(model_name_or_path, subfolder=subfolder, **hub)
        weights: Any = config.get("weights")
        is_list = isinstance(weights, list) and weights
        if not is_list or not all(isinstance(weight, int | float) for weight in weights):
            raise UserError(
                f"{model_name_or_path}: {cls.config_file_name}: weights: expected a number for "
                f"each member, found {shown(weights)}. Copy the whole folder again."
            )
        members = []
        options = {key: kwargs.get(key, False) for key in ("trust_remote_code", "local_files_only")}
        for number in range(1, len(weights) + 1):
            folder = cls.load_dir_path(
                model_name_or_path, os.path.join(subfolder, _name(number)), **hub
            )
            if folder is None:
                raise UserError(
                    f"{model_name_or_path} lacks {_name(number)}, the folder of one of its "
                    f"{len(weights)} members; copy the whole folder."
                )
            # Copies, because from_pretrained takes arguments out of what it is given.
            parts: dict[str, Any] = {
                key: dict(kwargs[key]) for key in _PART_KWARGS if kwargs.get(key)
            }
            # On the CPU: the model is moved as a whole afterwards.
            if options["trust_remote_code"]:
                members.append(SentenceTransformer(folder, device="cpu", **options, **parts))
            else:
                members.append(load_sentence_transformer(str(folder), device="cpu"))
        return cls(members, weights)


def _name(number: int) -> str:
    return f"member_{number}"


def ensemble_of(
    models: Sequence[SentenceTransformer | str | os.PathLike[str]],
    weights: Sequence[float] | None = None,
    *,
    pooling: PoolingName | None = None,
    max_seq_length: int | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> SentenceTransformer:
    """Build the model whose embedding is the weighted sum of the given models' embeddings.

    Models that pool alike and share a tokenizer become an
    :class:`~st_jtcse.modules.EnsembleEncoder`; any others become a
    :class:`~st_jtcse.modules.MultiTokenizerEnsemble`.

    Args:
        models: Models, or their folders or Hub ids.
        weights: Factor of each model; 1.0 by default.
        pooling: Pool the encoders in these folders so; None: each model is itself, and a plain
            encoder is refused.
        max_seq_length: Longest input in tokens; None: each model's own, or the least of them where
            they become one encoder.
        revision: Commit, tag or branch of the Hub models.
        trust_remote_code: Whether to run code that comes with a model.

    Returns:
        The model, for inference and for teaching.

    Raises:
        UserError: A model cannot be loaded, there is none, the weights do not match or cancel, the
            embeddings' sizes differ, or a model has no positions for such a length.
    """
    options: dict[str, Any] = dict(
        pooling=pooling, revision=revision, trust_remote_code=trust_remote_code
    )
    members = []
    for model in models:
        if not isinstance(model, SentenceTransformer):
            # On the CPU: the ensemble is moved as a whole.
            model = load_sentence_transformer(model, device="cpu", **options)
        members.append(model)
    ensemble = _joined(members, weights, max_seq_length)
    check_length(ensemble, max_seq_length)
    if weights is not None and min(weights) < 0 < max(weights):
        # One model can be given twice, under two names too, and only its embedding tells.
        found = ensemble.encode("A man walks.", convert_to_tensor=True, show_progress_bar=False)
        if float(found.norm()) <= 1e-6 * sum(map(abs, weights)):
            raise UserError(
                f"The weights {', '.join(f'{weight:g}' for weight in weights)} cancel: every "
                "embedding of the ensemble is zero; give others."
            )
    return ensemble


def _joined(
    members: Sequence[SentenceTransformer],
    weights: Sequence[float] | None,
    max_seq_length: int | None,
) -> SentenceTransformer:
    form = _form_of_all(members)
    if form is not None and _share_a_tokenizer(members):
        # Typed as Any: the modules of an nn.Sequential are of no class that mypy knows.
        encoders: list[Any] = [member[0] for member in members]
        encoder = EnsembleEncoder.from_members(
            [each.model for each in encoders],
            weights,
            **form.of_towers,
            tokenizer=encoders[0].tokenizer,
            max_seq_length=max_seq_length or min(each.max_seq_length for each in encoders),
        )
        return SentenceTransformer(
            modules=[encoder, Pooling(encoder.get_embedding_dimension(), "cls")]
        )
    ensemble = MultiTokenizerEnsemble(members, weights)
    if max_seq_length is not None:
        ensemble.max_seq_length = max_seq_length
    return SentenceTransformer(modules=[ensemble])


def _form_of_all(members: Sequence[SentenceTransformer]) -> SavedForm | None:
    """Return how all members pool their encoders, if an ensemble encoder can do so."""
    forms = [_form_of(member) for member in members]
    # An ensemble encoder has no poolers.
    if not forms or forms[0] == SavedForm(pooling="pooler"):
        return None
    if any(form != forms[0] for form in forms):
        return None
    return forms[0]


def _form_of(member: SentenceTransformer) -> SavedForm | None:
    kinds = [Transformer, Pooling, Normalize][: len(member)]
    is_plain = member.default_prompt_name is None and member.truncate_dim is None
    if not is_plain or len(member) < 2 or [type(module) for module in member][1:] != kinds[1:]:
        return None
    encoder, pooling = member[0], member[1]
    if not isinstance(encoder, Transformer) or not isinstance(pooling, Pooling):
        return None
    normalize, config = len(member) == 3, encoder.model.config
    if isinstance(config, SumConfig):
        # What it sums is not what a normalisation behind it makes of the sum.
        if normalize or pooling.pooling_mode != "cls" or config.pooling == "none":
            return None
        modules = _modules(config.normalize)
        return SavedForm(modules, config.pooling, config.include_prompt)
    if pooling.pooling_mode not in ("cls", "mean", "lasttoken") or config.is_encoder_decoder:
        return None
    if config.model_type not in CONFIG_MAPPING:
        return None
    return SavedForm(_modules(normalize), pooling.pooling_mode, pooling.include_prompt)


def _modules(normalize: bool) -> tuple[str, ...]:
    if normalize:
        return ("Pooling", "Normalize")
    return ("Pooling",)


def _share_a_tokenizer(members: Sequence[SentenceTransformer]) -> bool:
    configs: list[Any] = [member.config for member in members]
    if len({(config.vocab_size, config.pad_token_id) for config in configs}) > 1:
        return False
    return all(
        tokenizer_difference(members[0].tokenizer, member.tokenizer) is None
        for member in members[1:]
    )
