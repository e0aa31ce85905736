"""SimCSE on one sentence column, on the maths of Sentence-Transformers'
MultipleNegativesRankingLoss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from st_jtcse import processes
from st_jtcse.errors import UserError
from st_jtcse.losses.declaration import (
    AcuteAngle,
    Count,
    LossDeclaration,
    NotNegative,
    Part,
    Positive,
    Share,
)
from st_jtcse.losses.functional import info_nce, nt_xent
from st_jtcse.losses.gradcache import TwoViewLoss
from st_jtcse.losses.group_whitening import shuffled_group_whitening
from st_jtcse.losses.margins import bidirectional_margin, contrast, smoothed
from st_jtcse.losses.past_negatives import PastNegatives
from st_jtcse.losses.reading_head import Reading, ReadingHead
from st_jtcse.losses.views import BOTH_VIEWS, Terms, gathered, whole_dimension
from st_jtcse.signatures import arguments_of

Candidates = Literal["other_view", "both_views"]


class SimCSELoss(TwoViewLoss, MultipleNegativesRankingLoss):  # type: ignore[misc]  # the forward of the first
    r"""InfoNCE between two dropout views of each sentence.

    .. math:: L = -\frac{1}{B} \sum_i
        \log \frac{e^{sim(h_i^a, h_i^b) / \tau}}{\sum_c e^{sim(h_i^a, h_c) / \tau}}

    The views are made inside: the column is tokenised once and both views go through one forward
    pass. The rest is
    :class:`~sentence_transformers.sentence_transformer.losses.MultipleNegativesRankingLoss`,
    gathering included.

    Options make it the loss of other papers: an angular margin on the positive (ArcCSE), soft
    negatives (SNCSE), past negatives (ESimCSE), groups of past sentences (IS-CSE), whitened views
    (WhitenedCSE), a reading of the sentence from its embedding (DiffCSE, InfoCSE); see
    :mod:`st_jtcse.losses.margins`, :mod:`st_jtcse.losses.past_negatives`,
    :mod:`st_jtcse.losses.group_whitening` and :mod:`st_jtcse.losses.reading_head`.

    Args:
        model: The model to train; its dropout makes the views.
        temperature: τ > 0.
        candidates: ``"other_view"``: the B rows of view b, as in SimCSE. ``"both_views"``: NT-Xent,
            the 2B - 1 other rows of both views, averaged over the rows of both, as in the JTCSE and
            TNCSE code.
        angular_margin: m ≥ 0 in degrees, by which the positive must be nearer; 0: none.
        soft_negatives: λ ≥ 0 of the bidirectional margin loss over a third view of each sentence;
            0: without.
        least_gap: α, the least by which the soft negative's cosine shall lie below the positive's.
        most_gap: β ≥ α, the most.
        queue_size: N, how many of the last sentences' embeddings are further negatives; None: none.
        momentum: λ of the slow copy of the model that makes those; None: they are the model's own.
        instance_smoothing: α ≥ 0 of a second InfoNCE, once the queue is full, whose candidates are
            view b's rows each drawn to its group in the queue; the queue's rows are then no
            negatives. 0: without.
        smoothing_neighbours: k, how many past sentences are in a group.
        whitening_groups: G, a divisor of the embedding's size: both views are whitened over the
            batch in so many groups of components, shuffled anew each time; None: not.
        whitened_positives: How many such versions of view b are candidates; their losses are added.
        reading: What a second encoder reads of each sentence from its embedding: which tokens were
            replaced, or what the masked ones are; None: nothing.
        reading_weight: λ > 0 of its loss.
        mask_share: Share of the words that are replaced or masked.
        generator: Name or folder of the masked language model that proposes replacements; None:
            words of the batch.
        gather_across_devices: Whether candidates come from all processes.
        length_chunks: Chunks of similar length to encode a batch in; None: 4 on the CPU, else 1.
            The loss is the same.
        mini_batch_size: Rows to encode at once, of the 2B of both views, with gradients cached at
            the embeddings (GradCache): the same loss and gradients in the memory of so many rows,
            and twice the time. None: all.
        mini_batch_num_tokens: Tokens to encode at once instead of rows, without padding.

    Raises:
        UserError: A value is out of range, there is not exactly one text column, or no third view
            for soft negatives.

    Inputs:
        +----------+--------+
        | Columns  | Labels |
        +==========+========+
        | sentence | none   |
        +----------+--------+

    Relations:
        With labelled pairs use MultipleNegativesRankingLoss; with two towers use
        :class:`~st_jtcse.losses.JTCSELoss`.

    Example:
        ::

            from datasets import Dataset
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
            from st_jtcse.losses import SimCSELoss

            model = SentenceTransformer("bert-base-uncased")
            train_dataset = Dataset.from_dict(
                {"sentence": ["It is sunny today.", "He drove to work."]}
            )
            SentenceTransformerTrainer(
                model, train_dataset=train_dataset, loss=SimCSELoss(model)
            ).train()

    References:
        Gao et al., SimCSE, EMNLP 2021, Eq. 4; JTCSE (Zong et al.), Eq. 11; Zhang et al., ArcCSE,
        ACL 2022; Wang et al., SNCSE, 2022; He et al., IS-CSE, AAAI 2023; Zhuo et al., WhitenedCSE,
        ACL 2023; Chuang et al., DiffCSE, NAACL 2022; Wu et al., InfoCSE, Findings of EMNLP 2022.
    """

    declaration = LossDeclaration(
        sentences=True,
        views="made",
        any_views=True,
        third_view="soft_negatives",
        queue="queue_size",
        in_batch=True,
        tokens="reading",
        cards={(): "simcse"},
        options=("angular_margin", "soft_negatives", "queue_size", "whitening_groups", "reading"),
    )
    citation = """
@inproceedings{gao2021simcse,
    title = {{SimCSE}: Simple Contrastive Learning of Sentence Embeddings},
    author = {Gao, Tianyu and Yao, Xingcheng and Chen, Danqi},
    booktitle = {Proceedings of EMNLP}, year = {2021},
}
"""

    @classmethod
    def misfits(cls, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return what is wrong with arguments, also with two of them together."""
        found = super().misfits(arguments)
        least, most = arguments.get("least_gap", 0.1), arguments.get("most_gap", 0.3)
        if not found and least > most:
            found.append(
                ("least_gap", f"expected at most 'most_gap', {most:g}, found {least:g}. Lower it.")
            )
        queue, smoothing = arguments.get("queue_size"), arguments.get("instance_smoothing", 0)
        if not found and not queue and (smoothing or arguments.get("momentum") is not None):
            name = "instance_smoothing" if smoothing else "momentum"
            found.append(
                (name, f"expected 'queue_size' beside it, found none. Give it, or remove '{name}'.")
            )
        neighbours = arguments.get("smoothing_neighbours", 16)
        if not found and smoothing and neighbours >= queue:
            text = f"expected fewer than 'queue_size', {queue}, found {neighbours}. Lower it."
            found.append(("smoothing_neighbours", text))
        if not found and arguments.get("whitening_groups") and queue:
            text = (
                "expected no 'queue_size' beside it, whose embeddings are not whitened, found "
                "one. Remove one."
            )
            found.append(("whitening_groups", text))
        reading = arguments.get("reading")
        for part in ("mini_batch_size", "mini_batch_num_tokens") if reading and not found else ():
            if arguments.get(part):
                found.append(
                    (
                        part,
                        "expected none beside 'reading', which reads whole batches, found one. "
                        "Remove it.",
                    )
                )
        if not found and arguments.get("generator") and reading != "replaced_tokens":
            found.append(
                (
                    "generator",
                    "expected 'reading: replaced_tokens' beside it, found none. Remove it.",
                )
            )
        return found

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: Positive = 0.05,
        candidates: Candidates = "other_view",
        angular_margin: AcuteAngle = 0.0,
        soft_negatives: NotNegative = 0.0,
        least_gap: NotNegative = 0.1,
        most_gap: NotNegative = 0.3,
        queue_size: Count | None = None,
        momentum: Share | None = None,
        instance_smoothing: NotNegative = 0.0,
        smoothing_neighbours: Count = 16,
        whitening_groups: Count | None = None,
        whitened_positives: Count = 2,
        reading: Reading | None = None,
        reading_weight: Positive = 0.005,
        mask_share: Part = 0.3,
        generator: str | None = None,
        gather_across_devices: bool = False,
        length_chunks: Count | None = None,
        mini_batch_size: Count | None = None,
        mini_batch_num_tokens: Count | None = None,
    ) -> None:
        given = {
            name: value
            for name, value in locals().items()
            if name in arguments_of(SimCSELoss.__init__)
        }
        SimCSELoss.check(**given)
        super().__init__(
            model,
            scale=1 / temperature,
            gather_across_devices=gather_across_devices,
            directions=("query_to_doc", "query_to_query")
            if candidates == "both_views"
            else ("query_to_doc",),
        )
        self.candidates = candidates
        self.angular_margin = angular_margin
        self.soft_negatives = soft_negatives
        self.least_gap = least_gap
        self.most_gap = most_gap
        self.queue_size = queue_size
        self.momentum = momentum
        self.instance_smoothing = instance_smoothing
        self.smoothing_neighbours = smoothing_neighbours
        self.whitening_groups = whitening_groups
        self.whitened_positives = whitened_positives
        self.reading = reading
        self.reading_weight = reading_weight
        self.mask_share = mask_share
        self.generator = generator
        self.length_chunks = length_chunks
        self.mini_batch_size = mini_batch_size
        self.mini_batch_num_tokens = mini_batch_num_tokens
        # Kept, because MatryoshkaLoss cuts what the model gives.
        self._embedding_dimension = whole_dimension(model)
        whole = int(self._embedding_dimension or 0)
        self.past = PastNegatives(model, queue_size, whole, momentum) if queue_size else None
        self.reader = ReadingHead(model, reading, mask_share, generator) if reading else None

    def compare(
        self, encoded: dict[str, Tensor], features: dict[str, Any], labels: Tensor | None
    ) -> Tensor | Terms:
        """Return the loss of the views' embeddings, 2B or with soft negatives 3B of them, or its
        terms by name.
        """
        if self.soft_negatives and BOTH_VIEWS not in features:
            raise UserError(
                "soft_negatives needs a third view of each sentence, found two by dropout; give "
                "'views'."
            )
        a, b, *soft = encoded["sentence_embedding"].chunk(3 if self.soft_negatives else 2)
        terms = Terms(nce=self.nce(a, b))
        if self.past is not None and self.instance_smoothing:
            terms["smoothing"] = self.instance_smoothing * self._of_groups(a, b, self.past)
        if (
            self.past is not None and torch.is_grad_enabled()
        ):  # What is only evaluated is not trained on.
            self.past.take(self.model, features, b, self.length_chunks)
        if soft:
            gap = bidirectional_margin(a, b, soft[0], self.least_gap, self.most_gap)
            terms["soft_negatives"] = self.soft_negatives * gap
        if self.reader is not None:
            terms[str(self.reading)] = self.reading_weight * self.reader(
                encoded["sentence_embedding"], features
            )
        return terms if len(terms) > 1 else terms["nce"]

    @property
    def _has_options(self) -> bool:
        return bool(self.angular_margin or self.past is not None or self.whitening_groups)

    def nce(self, a: Tensor, b: Tensor) -> Tensor:
        """Return InfoNCE of the two views' embeddings, (B, H) each."""
        if not self.uses_gradient_cache or self._has_options:
            return self.compute_loss_from_embeddings([a, b])
        a, b = gathered([a, b], self.gather_across_devices)
        form = info_nce if self.candidates == "other_view" else nt_xent
        return form(a, b, self.temperature, self.anchors_at_once)

    def compute_loss_from_embeddings(
        self, embeddings: list[Tensor], labels: Tensor | None = None
    ) -> Tensor:
        """Return the loss of the two views' embeddings, (B, H) each."""
        if self._has_options:
            return self._with_options(*embeddings)
        loss = super().compute_loss_from_embeddings(embeddings, cast(Tensor, labels))
        if self.candidates == "other_view":
            return loss
        # The parent scores the rows of its first column only; NT-Xent is the mean over the rows of
        # both.
        swapped = super().compute_loss_from_embeddings(embeddings[::-1], cast(Tensor, labels))
        return (loss + swapped) / 2

    def _with_options(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the same with an angular margin and past negatives, or of whitened views."""
        every_a, every_b, own = self._every(a, b)
        if not self.whitening_groups:
            return self._contrast(a, b, every_a, every_b, own)
        white_a = self._whitened(every_a)
        versions = [self._whitened(every_b) for _ in range(self.whitened_positives)]
        losses = [
            self._contrast(white_a[own], white_b[own], white_a, white_b, own)
            for white_b in versions
        ]
        return torch.stack(losses).sum()

    def _contrast(
        self, a: Tensor, b: Tensor, every_a: Tensor, every_b: Tensor, own: Tensor
    ) -> Tensor:
        past = None if self.past is None or self.instance_smoothing else self.past.rows()
        settings = own, self.temperature, self.angular_margin
        if self.candidates == "other_view":
            return contrast(a, every_b, *settings, past=past)
        first_way = contrast(a, every_b, *settings, every_a, past)
        return (first_way + contrast(b, every_a, *settings, every_b, past)) / 2

    def _of_groups(self, a: Tensor, b: Tensor, past: PastNegatives) -> Tensor:
        """Return InfoNCE between view a and the groups of view b; 0 until the queue is full."""
        _, every_b, own = self._every(a, b)
        rows = torch.cat([past.rows().to(b), every_b.detach()])[-len(past.queue) :]
        if len(rows) < len(past.queue):
            return a.new_zeros(())
        return contrast(
            a, smoothed(every_b, rows, self.smoothing_neighbours), own, self.temperature
        )

    def _every(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the views of all processes, where the loss gathers, and which of their rows are
        this one's.
        """
        every_a, every_b = gathered([a, b], self.gather_across_devices)
        first = processes.rank() * len(a) if len(every_a) > len(a) else 0
        return every_a, every_b, torch.arange(first, first + len(a), device=a.device)

    def _whitened(self, every: Tensor) -> Tensor:
        """Return a version of embeddings, in an order that is the same in all processes whose rows
        they are.
        """
        order = torch.randperm(every.shape[1]).to(every.device)
        order = processes.of_first(order) if self.gather_across_devices else order
        return shuffled_group_whitening(every, int(self.whitening_groups or 1), order)
