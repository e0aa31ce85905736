"""IS-CSE: contrastive learning with smoothed instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn import functional as F

from st_jtcse.losses.declaration import Count, Positive
from st_jtcse.losses.functional import cosines
from st_jtcse.losses.terms import TWO_VIEWS, Batch, Term, TwoViewLoss
from st_jtcse.papers.losses.margins import MarginInfoNCE, contrast
from st_jtcse.papers.losses.past_negatives import PastNegatives


def smoothed(rows: Tensor, past: Tensor, count: int, temperature: float = 2.0) -> Tensor:
    r"""Return each embedding's group: the mean of itself and its nearest past ones by attention.

    .. math:: \tilde x_i = \sum_{n \in \{x_i\} \cup N_k(x_i)}
        \frac{e^{\cos(x_i, n) / \beta}}{\sum_{m \in \{x_i\} \cup N_k(x_i)} e^{\cos(x_i, m) / \beta}}
        \, \frac{n}{\|n\|}

    Args:
        rows: (B, H).
        past: (N, H) without gradient, the rows themselves among them; N > k.
        count: k, how many of the past ones but itself are in a group.
        temperature: β.

    References:
        He et al., IS-CSE, AAAI 2023, the group of a sentence by its nearest neighbours.
    """
    # The nearest is the row itself.
    nearest = cosines(rows.detach(), past).topk(count + 1).indices[:, 1:]
    group = F.normalize(torch.cat([rows.unsqueeze(1), past.to(rows)[nearest]], dim=1), dim=-1)
    weights = ((group[:, :1] * group).sum(dim=-1) / temperature).softmax(dim=1)
    return (weights.unsqueeze(2) * group).sum(dim=1)


@dataclass(eq=False)
class InstanceSmoothing(Term):
    """InfoNCE of view a against view b's groups in a queue; 0 until the queue is full."""

    temperature: float
    neighbours: int
    past: PastNegatives

    def __call__(self, batch: Batch) -> Tensor:
        """Return the mean over this process's sentences."""
        every_b, size = batch.every[1], len(self.past.queue)
        rows = torch.cat([self.past.rows().to(every_b), every_b.detach()])[-size:]
        if len(rows) < size:
            return every_b.new_zeros(())
        groups = smoothed(every_b, rows, self.neighbours)
        return contrast(batch.views[0], groups, batch.own, self.temperature)

    def take(self, batch: Batch) -> None:
        """Put the batch behind the queue."""
        self.past.take(batch)


class ISCSELoss(TwoViewLoss):
    r"""InfoNCE, and a second one whose candidates are smoothed over past sentences.

    .. math:: L = L_{NCE}(h^a, h^b) + \alpha L_{NCE}(h^a, \tilde h^b), \qquad
        \tilde h_i = \sum_{n \in \{h_i\} \cup N_k(h_i)}
        \frac{e^{\cos(h_i, n) / \beta}}{\sum_{m} e^{\cos(h_i, m) / \beta}} \frac{n}{\|n\|}

    :math:`N_k` are the k nearest embeddings in a queue of the last N, and β = 2. The queue takes no
    gradient, is part of every checkpoint, and is the same in all processes; until it is full the
    second term is 0.

    Args:
        model: The model to train.
        temperature: τ > 0.
        queue_size: N; with a batch it must not exceed the training text.
        smoothing_weight: α > 0.
        neighbours: k < N.
        gather_across_devices: Whether candidates come from all processes.
        mini_batch_size: Rows of all views to encode at once (GradCache): the same loss and
            gradients in the memory that these need, in twice the time. None: all.
        mini_batch_num_tokens: Tokens to encode at once instead of rows, without padding.

    Raises:
        UserError: A value is out of range, there is not exactly one text column, or the embeddings
            are cut, as MatryoshkaLoss does.

    Inputs:
        +----------+--------+
        | Columns  | Labels |
        +==========+========+
        | sentence | none   |
        +----------+--------+

    Relations:
        Without the second term: :class:`~st_jtcse.losses.SimCSELoss`. A queue of negatives:
        :class:`~st_jtcse.losses.ESimCSELoss`.

    Example:
        ::

            from datasets import Dataset
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
            from st_jtcse.losses import ISCSELoss

            model = SentenceTransformer("bert-base-uncased")
            train_dataset = Dataset.from_dict(
                {"sentence": ["It is sunny today.", "He drove to work."]}
            )
            loss = ISCSELoss(model, queue_size=320)
            SentenceTransformerTrainer(model, train_dataset=train_dataset, loss=loss).train()

    References:
        He et al., IS-CSE, AAAI 2023, the group of a sentence by its nearest neighbours.
    """

    declaration = replace(TWO_VIEWS, queue="queue_size")
    citation = """
@inproceedings{he2023iscse,
    title = {Instance Smoothed Contrastive Learning for Unsupervised Sentence Embedding},
    author = {He, Hongliang and others}, booktitle = {Proceedings of AAAI}, year = {2023},
}
"""

    @classmethod
    def misfits_together(cls, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield as many neighbours as the queue holds."""
        count, size = arguments["neighbours"], arguments["queue_size"]
        if count >= size:
            told = f"expected fewer than 'queue_size', {size}, found {count}. Lower it."
            yield "neighbours", told

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: Positive = 0.05,
        queue_size: Count = 1024,
        smoothing_weight: Positive = 0.1,
        neighbours: Count = 16,
        gather_across_devices: bool = False,
        mini_batch_size: Count | None = None,
        mini_batch_num_tokens: Count | None = None,
    ) -> None:
        super().__init__(model, locals())
        self.past = PastNegatives(model, queue_size, self.dimension)
        smoothing = InstanceSmoothing(temperature, neighbours, self.past, weight=smoothing_weight)
        self.terms = {"nce": MarginInfoNCE(temperature), "smoothing": smoothing}
