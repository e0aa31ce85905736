"""The joint loss of two towers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather
from torch import Tensor

from st_jtcse import processes
from st_jtcse.errors import UserError
from st_jtcse.losses.declaration import Count, NotNegative, Positive
from st_jtcse.losses.functional import interaction_nt_xent, interaction_tensor_modulus, nt_xent
from st_jtcse.losses.terms import TWO_VIEWS, Batch, Term, TwoViewLoss
from st_jtcse.losses.views import ahead, gathered, token_sum
from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder
from st_jtcse.modules.joined_pooling import check_pooling

Direction = Literal["random", "1_to_2"]
# Views a and b of one tower's states, (N, H) each; a list has one pair a tower.
Views = tuple[Tensor, Tensor]


@dataclass(eq=False)
class TowerContrast(Term):
    """The sum of the towers' NT-Xent (JTCSE Eq. 11)."""

    temperature: float

    def __call__(self, batch: Batch) -> Tensor:
        """Return the sum over the towers of the means over 2N rows."""
        settings = self.temperature, batch.loss.anchors_at_once
        towers = [nt_xent(a, b, *settings) for a, b in batch.once(_states)]
        return torch.stack(towers).sum()


@dataclass(eq=False)
class TowerInteraction(Term):
    """NT-Xent from one tower's states to the other's (JTCSE Eq. 12)."""

    temperature: float
    order: TowerOrder
    read: Callable[[Batch], list[Views]]

    def __call__(self, batch: Batch) -> Tensor:
        """Return the mean over 2N rows."""
        towers, settings = batch.once(self.read), (self.temperature, batch.loss.anchors_at_once)
        query, candidate = (towers[index] for index in batch.once(self.order))
        return interaction_nt_xent(query[0], query[1], candidate[0], candidate[1], *settings)


class TowerModulus(Term):
    """The modulus term between the towers' poolers (JTCSE Eq. 13 and 14)."""

    def __call__(self, batch: Batch) -> Tensor:
        """Return the mean over N sentences; of a single tower, between its own two views."""
        states: list[Views] = batch.once(_states)
        # Whole under MatryoshkaLoss too: no component of the embedding is one of the poolers'.
        poolers = _views(batch, batch.encoded["tower_pooler"])
        return interaction_tensor_modulus(*states[0], *states[-1], *poolers[0], *poolers[-1])


class TowerOrder:
    """Draws R (JTCSE Eq. 12): the towers' indices as (queries, candidates).

    A draw follows from the seed and the batch's tokens, so that it is the same in a resumed run and
    in every process of a distributed one.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._summed: tuple[Any, Callable[[], int]] = (None, lambda: 0)

    def __call__(self, batch: Batch) -> tuple[int, int]:
        """Return the order for a batch that was encoded."""
        return self.draw(batch.features)

    def look_ahead(self, features: dict[str, Any]) -> None:
        """Begin to sum the batch's tokens, before it is encoded."""
        if self._seed is None:
            return
        # Padding, which differs between processes, does not count.
        checksum = token_sum(features).view(1)
        if processes.count() > 1:
            checksum = all_gather(checksum).sum()
        self._summed = features, ahead(checksum)

    def draw(self, features: dict[str, Any]) -> tuple[int, int]:
        """Return the order for a batch of tokens: without a seed always the first tower's."""
        if self._seed is None:
            return 0, 1
        if self._summed[0] is not features:
            self.look_ahead(features)
        checksum = self._summed[1]()
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + checksum)
        second = torch.randint(2, (1,), generator=generator).tolist()[0]
        return second, 1 - second


def _views(batch: Batch, rows: Tensor) -> list[Views]:
    """Split (2B, K, H) into one pair of views, (N, H) each, for each of the K towers."""
    views = gathered(rows.chunk(2), batch.loss.gather_across_devices)
    return list(zip(*(view.unbind(1) for view in views)))


def _towers(name: str, batch: Batch) -> list[Views]:
    """Return the towers' states of that name, with as many components as MatryoshkaLoss left of the
    embedding.
    """
    embedding = batch.encoded["sentence_embedding"]
    # One tower without a head: the embedding is its state.
    if name not in batch.encoded:
        return _views(batch, embedding.unsqueeze(1))
    rows, whole, left = batch.encoded[name], batch.loss.dimension, embedding.shape[-1]
    if left == whole:
        return _views(batch, rows)
    # An embedding of another size is not a sum of the states, so that its first components are not
    # theirs.
    if whole != rows.shape[-1]:
        raise UserError(
            "MatryoshkaLoss around JTCSELoss needs embeddings of the towers' size, "
            f"{rows.shape[-1]}, found {whole}; leave out the module behind the pooling that "
            "changes it."
        )
    return _views(batch, rows[..., :left])


_states = partial(_towers, "tower_embedding")
_cross_states = partial(_towers, "cross_embedding")


class JTCSELoss(TwoViewLoss):
    r"""Joint loss of two towers.

    .. math:: L = L_{NCE}(I) + L_{NCE}(II) + L_{ICNCE}(h) + L_{ICNCE}(c) + L_{ICTM}

    each term times its weight (JTCSE Eq. 15). A weight of 0 switches the term off: it is neither
    computed nor logged. TNCSE is the setting ``cross_weight=0, direction="1_to_2"``. A single tower
    with a PoolerModulusHead trains on L_NCE and the modulus term between its own views
    (``icnce_weight=0, cross_weight=0``).

    Args:
        model: First module a :class:`~st_jtcse.modules.TwinCrossAttentionEncoder`, or an ordinary
            Transformer for single-tower training; a :class:`~st_jtcse.modules.PoolerModulusHead`
            behind it for the modulus term.
        temperature: τ > 0 of the InfoNCE terms.
        nce_weight: Factor of ``nce``, the sum of the towers' NT-Xent (Eq. 11).
        icnce_weight: Factor of ``icnce``, NT-Xent between the towers' CLS states (Eq. 12).
        cross_weight: Factor of ``icnce_cross``, NT-Xent between the towers' cross-stream CLS states
            (Eq. 12).
        ictm_weight: Factor of ``ictm``, the modulus term (Eq. 13, 14). 0.5 is the authors' code,
            which halves each ratio; 1.0 is the papers' text.
        direction: ``"random"``: each step draws R, and both interaction terms go I -> II or II ->
            I. ``"1_to_2"``: always I -> II (TNCSE).
        seed: Seed of R. A step's draw follows from the seed and the sentences of the step, so that
            it is the same in a resumed run and in every process of a distributed one.
        gather_across_devices: Whether the terms run over the sentences of all processes.
        mini_batch_size: Rows of all views to encode at once (GradCache): the same loss and
            gradients in the memory that these need, in twice the time. None: all.
        mini_batch_num_tokens: Tokens to encode at once instead of rows, without padding.

    Raises:
        UserError: A value is out of range, the model lacks what a term needs, or there is not
            exactly one text column.

    Inputs:
        +----------+--------+
        | Columns  | Labels |
        +==========+========+
        | sentence | none   |
        +----------+--------+

    Relations:
        One tower without modulus term: :class:`~st_jtcse.losses.SimCSELoss`. In ST's MatryoshkaLoss
        the CLS states of the towers and of their cross streams are cut to the first d components,
        wherever a term compares them; the poolers' outputs stay whole.

    Example:
        ::

            from datasets import Dataset
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
            from sentence_transformers.sentence_transformer.modules import Pooling
            from st_jtcse.losses import JTCSELoss
            from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder

            encoder = TwinCrossAttentionEncoder.from_towers(
                "path/to/encoder_1", "path/to/encoder_2"
            )
            pooling = Pooling(encoder.get_embedding_dimension(), "cls")
            model = SentenceTransformer(modules=[encoder, PoolerModulusHead(), pooling])
            train_dataset = Dataset.from_dict(
                {"sentence": ["It is sunny today.", "He drove to work."]}
            )
            SentenceTransformerTrainer(
                model, train_dataset=train_dataset, loss=JTCSELoss(model)
            ).train()

    References:
        JTCSE (Zong et al.), Eq. 11 to 15; TNCSE (Zong et al., AAAI 2025, doi
        10.1609/aaai.v39i24.34816), Eq. 5 to 7.
    """

    declaration = replace(
        TWO_VIEWS,
        pooler_weight="ictm_weight",
        one_above_zero=("nce_weight", "icnce_weight", "cross_weight", "ictm_weight"),
        cards={(): "jtcse", ("cross_weight",): "tncse"},
        twin=True,
    )
    requests: ClassVar = {"tower_outputs": True}
    citation = """
@inproceedings{zong2025tncse,
    title = {{TNCSE}: Tensor's Norm Constraints for Unsupervised Contrastive Learning of
             Sentence Embeddings},
    author = {Zong, Tianyu and others}, booktitle = {Proceedings of AAAI}, year = {2025},
    doi = {10.1609/aaai.v39i24.34816},
}
"""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: Positive = 0.05,
        nce_weight: NotNegative = 1.0,
        icnce_weight: NotNegative = 1.0,
        cross_weight: NotNegative = 1.0,
        ictm_weight: NotNegative = 0.5,
        direction: Direction = "random",
        seed: int = 42,
        gather_across_devices: bool = False,
        mini_batch_size: Count | None = None,
        mini_batch_num_tokens: Count | None = None,
    ) -> None:
        super().__init__(model, locals())
        _check_model(model, icnce_weight, cross_weight, ictm_weight)
        order = self.order = TowerOrder(seed if direction == "random" else None)
        icnce = TowerInteraction(temperature, order, _states, weight=icnce_weight)
        of_cross = TowerInteraction(temperature, order, _cross_states, weight=cross_weight)
        self.terms = {
            "nce": TowerContrast(temperature, weight=nce_weight),
            "icnce": icnce,
            "icnce_cross": of_cross,
            "ictm": TowerModulus(weight=ictm_weight),
        }

    def look_ahead(self, features: dict[str, Any]) -> None:
        """Begin to sum the batch's tokens, from which R is drawn."""
        if self.terms["icnce"].weight or self.terms["icnce_cross"].weight:
            self.order.look_ahead(features)


def _check_model(model: Any, icnce: float, cross: float, ictm: float) -> None:
    """Raise UserError where a model lacks what a term needs, or is pooled twice."""
    check_pooling(model)
    encoder = model[0]
    if isinstance(encoder, TwinCrossAttentionEncoder):
        if cross and encoder.model.config.cross_attention_every is None:
            raise UserError(
                "cross_weight needs a twin with cross-attention; set cross_attention_every, or "
                "cross_weight to 0."
            )
    elif icnce or cross:
        raise UserError(
            "icnce_weight and cross_weight need two towers, but the model's first module is a "
            f"{type(encoder).__name__}; use TwinCrossAttentionEncoder, or set both weights to 0."
        )
    if ictm and not any(isinstance(module, PoolerModulusHead) for module in model):
        raise UserError(
            "ictm_weight needs the towers' pooler outputs; add a PoolerModulusHead to the model, "
            "or set it to 0."
        )
