"""Bi-encoder or cross-encoder: what of Sentence-Transformers a stage is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sentence_transformers import (
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.cross_encoder.evaluation import CrossEncoderCorrelationEvaluator
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from st_jtcse import data
from st_jtcse.errors import UserError
from st_jtcse.evaluation.shared_encoding import encode_shared, found_together
from st_jtcse.modules import load_sentence_transformer, save_for_inference
from st_jtcse.modules.loading import load_cross_encoder
from st_jtcse.recipe.schema import ModelSpec

EVALUATION_BATCH = 64


@dataclass(frozen=True)
class ModelKind:
    """The classes and functions of one kind of model."""

    trainer: Any
    arguments: Any  # Class of the trainer's arguments
    # From a name and graded pairs to an evaluator.
    evaluator: Callable[[str, data.Pairs], Any]
    # Name of that evaluator's Spearman correlation, after the data set's name.
    metric: str
    # Writes a model into a folder, in the form that anyone loads, without its card.
    save: Callable[[Any, Path], None]
    # Reads it back; the second argument is the flag for code that comes with the model.
    load: Callable[[Path, bool], Any]

    def metric_of(self, evaluator: Any) -> str:
        """Return the name of an evaluator's metric, after the data set's; one of ours says it."""
        return str(getattr(evaluator, "metric", self.metric))

    def scores(self, model: Any, evaluators: Mapping[str, Any]) -> dict[str, float]:
        """Return a model's scores x 100 on each evaluation set: of graded pairs, Spearman of its
        cosines or outputs.

        Raises UserError where one is not defined.
        """
        found = {}
        for name, evaluator in evaluators.items():
            found[name] = round(
                100 * float(evaluator(model)[f"{name}_{self.metric_of(evaluator)}"]), 4
            )
            if not math.isfinite(found[name]):
                raise UserError(
                    f"The model's correlation on {name!r} is not defined, as where all embeddings "
                    "are equal or zero, or all gold scores are equal; check the model's weights "
                    "and the set."
                )
        return found

    def shared_scores(self, model: Any, evaluators: Mapping[str, Any]) -> dict[str, float]:
        """Return the scores of :meth:`scores` in every process of a run; all come here with the
        same model, and share what it encodes. What a cross-encoder scores is not shared.
        """
        if self is CROSS_ENCODER:
            return self.scores(model, evaluators)
        return found_together(model, partial(self.scores, model, evaluators))


def kind_of(spec: ModelSpec) -> ModelKind:
    """Return the kind of a recipe's model."""
    if spec.scores_pairs:
        return CROSS_ENCODER
    return BI_ENCODER


def _cosines(name: str, pairs: data.Pairs) -> Any:
    evaluator: Any = EmbeddingSimilarityEvaluator(
        pairs.sentences1,
        pairs.sentences2,
        pairs.scores,
        batch_size=EVALUATION_BATCH,
        name=name,
        main_similarity="cosine",
        similarity_fn_names=["cosine"],
        write_csv=False,
    )
    # Not a subclass: cards name the evaluator's.
    evaluator.embed_inputs = _embedded
    return evaluator


def _embedded(model: SentenceTransformer, sentences: list[str]) -> Any:
    encode = partial(model.encode, batch_size=EVALUATION_BATCH, show_progress_bar=False)
    return encode_shared(model, encode, sentences, EVALUATION_BATCH)


def _predictions(name: str, pairs: data.Pairs) -> CrossEncoderCorrelationEvaluator:
    both = [list(pair) for pair in zip(pairs.sentences1, pairs.sentences2)]
    return CrossEncoderCorrelationEvaluator(
        both,
        pairs.scores,
        name=name,
        batch_size=EVALUATION_BATCH,
        write_csv=False,
        show_progress_bar=False,
    )


BI_ENCODER = ModelKind(
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    _cosines,
    "spearman_cosine",
    lambda model, folder: save_for_inference(model, folder, create_model_card=False),
    lambda folder, trust: load_sentence_transformer(folder, trust_remote_code=trust),
)
CROSS_ENCODER = ModelKind(
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    _predictions,
    "spearman",
    lambda model, folder: model.save_pretrained(str(folder), create_model_card=False),
    lambda folder, trust: load_cross_encoder(folder, trust_remote_code=trust),
)
