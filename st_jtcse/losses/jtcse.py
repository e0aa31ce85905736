"""The joint loss of two towers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather
from torch import Tensor

from st_jtcse import processes
from st_jtcse.errors import UserError
from st_jtcse.losses.declaration import Count, LossDeclaration, NotNegative, Positive
from st_jtcse.losses.functional import interaction_nt_xent, interaction_tensor_modulus, nt_xent
from st_jtcse.losses.gradcache import TwoViewLoss
from st_jtcse.losses.views import Terms, ahead, gathered, token_sum, whole_dimension
from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder

Direction = Literal["random", "1_to_2"]


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
        length_chunks: Chunks of similar length to encode a batch in; None: 4 on the CPU, else 1.
            The loss is the same.
        mini_batch_size: Rows to encode at once, of the 2B of both views, with gradients cached at
            the embeddings (GradCache): the same loss and gradients in the memory of so many rows,
            and twice the time. None: all.
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

    declaration = LossDeclaration(
        sentences=True,
        views="made",
        any_views=True,
        in_batch=True,
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
        length_chunks: Count | None = None,
        mini_batch_size: Count | None = None,
        mini_batch_num_tokens: Count | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature
        self.nce_weight = nce_weight
        self.icnce_weight = icnce_weight
        self.cross_weight = cross_weight
        self.ictm_weight = ictm_weight
        self.direction = direction
        self.seed = seed
        self.gather_across_devices = gather_across_devices
        self.length_chunks = length_chunks
        self.mini_batch_size = mini_batch_size
        self.mini_batch_num_tokens = mini_batch_num_tokens
        self._embedding_dimension = whole_dimension(model)
        self._summed: tuple[dict[str, Any], Callable[[], int]] | None = None
        self.check(**self.get_config_dict())
        encoder = model[0]
        if isinstance(encoder, TwinCrossAttentionEncoder):
            if self.cross_weight and encoder.model.config.cross_attention_every is None:
                raise UserError(
                    "cross_weight needs a twin with cross-attention; set cross_attention_every, or "
                    "cross_weight to 0."
                )
        elif self.icnce_weight or self.cross_weight:
            raise UserError(
                "icnce_weight and cross_weight need two towers, but the model's first module is a "
                f"{type(encoder).__name__}; use TwinCrossAttentionEncoder, or set both weights to "
                "0."
            )
        if self.ictm_weight and not any(isinstance(module, PoolerModulusHead) for module in model):
            raise UserError(
                "ictm_weight needs the towers' pooler outputs; add a PoolerModulusHead to the "
                "model, or set it to 0."
            )

    def compare(
        self, encoded: dict[str, Tensor], features: dict[str, Any], labels: Tensor | None
    ) -> Terms:
        """Return the weighted terms of the towers' states by name."""
        cls = self._views(self._cut(encoded, "tower_embedding"))
        terms = Terms()
        if self.nce_weight:
            nce = [nt_xent(a, b, self.temperature, self.anchors_at_once) for a, b in cls]
            terms["nce"] = self.nce_weight * torch.stack(nce).sum()
        if self.icnce_weight or self.cross_weight:
            order = self._draw_order(features)
            if self.icnce_weight:
                terms["icnce"] = self.icnce_weight * self._interaction(cls, order)
            if self.cross_weight:
                cross = self._views(self._cut(encoded, "cross_embedding"))
                terms["icnce_cross"] = self.cross_weight * self._interaction(cross, order)
        if self.ictm_weight:
            # Whole under MatryoshkaLoss too: no component of the embedding is one of the poolers'.
            pooler = self._views(encoded["tower_pooler"])
            # With one tower both partners are the tower itself: the term then ties its own two
            # views.
            (h_1, h_2), (p_1, p_2) = (
                towers if len(towers) == 2 else towers * 2 for towers in (cls, pooler)
            )
            terms["ictm"] = self.ictm_weight * interaction_tensor_modulus(*h_1, *h_2, *p_1, *p_2)
        return terms

    def look_ahead(self, features: dict[str, Any]) -> None:
        """Begin to sum the batch's tokens, from which R is drawn."""
        if self.direction == "random" and (self.icnce_weight or self.cross_weight):
            self._summed = features, self._checksum(features)

    def _cut(self, encoded: dict[str, Tensor], name: str) -> Tensor:
        """Keep as many components of the towers' states, (2B, K, H), as MatryoshkaLoss left of the
        embedding.
        """
        if name not in encoded:  # One tower without a head: the embedding is its state.
            return encoded["sentence_embedding"].unsqueeze(1)
        rows, whole, left = (
            encoded[name],
            self._embedding_dimension,
            encoded["sentence_embedding"].shape[-1],
        )
        # An embedding of another size is not a sum of the states, so that its first components are
        # not theirs.
        if left != whole != rows.shape[-1]:
            raise UserError(
                "MatryoshkaLoss around JTCSELoss needs embeddings of the towers' size, "
                f"{rows.shape[-1]}, found "
                f"{whole}; leave out the module behind the pooling that changes it."
            )
        return rows if left == whole else rows[..., :left]

    def _views(self, rows: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Split (2B, K, H) into one pair of views, (B, H) each, for each of the K towers."""
        views = gathered(rows.chunk(2), self.gather_across_devices)
        return list(zip(*(view.unbind(1) for view in views)))

    def _interaction(self, towers: list[tuple[Tensor, Tensor]], order: tuple[int, int]) -> Tensor:
        query, candidate = (towers[index] for index in order)
        return interaction_nt_xent(*query, *candidate, self.temperature, self.anchors_at_once)

    def _draw_order(self, features: dict[str, Any]) -> tuple[int, int]:
        """Draw R (JTCSE Eq. 12): the towers' indices as (queries, candidates)."""
        if self.direction == "1_to_2":
            return 0, 1
        summed, read = self._summed or (None, None)
        checksum = read if read is not None and summed is features else self._checksum(features)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + checksum())
        reverse = torch.randint(2, (1,), generator=generator).tolist()[0]
        return (1, 0) if reverse else (0, 1)

    def _checksum(self, features: dict[str, Any]) -> Callable[[], int]:
        # Padding, which differs between processes, does not count.
        checksum = token_sum(features).view(1)
        if processes.count() > 1:
            checksum = all_gather(checksum).sum()
        return ahead(checksum)
