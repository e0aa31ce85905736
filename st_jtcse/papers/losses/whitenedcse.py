"""WhitenedCSE: contrastive learning between whitened views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_jtcse import processes
from st_jtcse.errors import UserError
from st_jtcse.losses.declaration import Count, Positive
from st_jtcse.losses.terms import TWO_VIEWS, Batch, Term, TwoViewLoss
from st_jtcse.papers.losses.margins import contrast

# Of the largest variance of a group: what is below it counts as so much.
_SMALLEST = 1e-6


@dataclass(eq=False)
class WhitenedInfoNCE(Term):
    """InfoNCE of whitened view a against each of several whitened versions of view b."""

    temperature: float
    groups: int
    positives: int

    def __call__(self, batch: Batch) -> Tensor:
        """Return the sum over the versions of the means over this process's sentences."""
        every_a, every_b = batch.every
        gathers = batch.loss.gather_across_devices
        queries, own = self._whitened(every_a, gathers), batch.own
        versions = [self._whitened(every_b, gathers) for _ in range(self.positives)]
        losses = [contrast(queries[own], each, own, self.temperature) for each in versions]
        return torch.stack(losses).sum()

    def _whitened(self, every: Tensor, gathers: bool) -> Tensor:
        """Return a version of embeddings, in an order that is the same in all processes whose rows
        they are.
        """
        order = torch.randperm(every.shape[1]).to(every.device)
        if gathers:
            order = processes.of_first(order)
        return shuffled_group_whitening(every, self.groups, order)


class WhitenedCSELoss(TwoViewLoss):
    r"""InfoNCE between views that are whitened over the batch, with several positives.

    .. math:: L = \sum_{p=1}^P L_{NCE}(w_0(h^a), w_p(h^b)), \qquad
        w(h)_{ig} = \Sigma_g^{-1/2} (h_{ig} - \mu_g)

    Each w whitens the components of the embeddings in G groups, shuffled anew each time: mean μ and
    covariance Σ of a group are those of the batch. The saved model whitens nothing.

    Args:
        model: The model to train.
        temperature: τ > 0.
        whitening_groups: G, a divisor of the embedding's size, and of each size that MatryoshkaLoss
            cuts it to. A batch should have more sentences than a group has components: a direction
            in which it does not vary stays 0. WhitenedCSE's code: groups of six components.
        whitened_positives: P.
        gather_across_devices: Whether the batches of all processes are whitened together, alike,
            and candidates come from all of them.
        mini_batch_size: Rows of all views to encode at once (GradCache): the same loss and
            gradients in the memory that these need, in twice the time. None: all.
        mini_batch_num_tokens: Tokens to encode at once instead of rows, without padding.

    Raises:
        UserError: A value is out of range, there is not exactly one text column, or G does not
            divide the embedding's size.

    Inputs:
        +----------+--------+
        | Columns  | Labels |
        +==========+========+
        | sentence | none   |
        +----------+--------+

    Relations:
        Without whitening: :class:`~st_jtcse.losses.SimCSELoss`. A model that whitens after
        training: :func:`~st_jtcse.modules.whitening_of`.

    Example:
        ::

            from datasets import Dataset
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
            from st_jtcse.losses import WhitenedCSELoss

            model = SentenceTransformer("bert-base-uncased")
            train_dataset = Dataset.from_dict(
                {"sentence": ["It is sunny today.", "He drove to work."]}
            )
            loss = WhitenedCSELoss(model, whitening_groups=8)
            SentenceTransformerTrainer(model, train_dataset=train_dataset, loss=loss).train()

    References:
        Zhuo et al., WhitenedCSE, ACL 2023, shuffled group whitening and multi-positive contrast.
    """

    declaration = TWO_VIEWS
    citation = """
@inproceedings{zhuo2023whitenedcse,
    title = {{WhitenedCSE}: Whitening-based Contrastive Learning of Sentence Embeddings},
    author = {Zhuo, Wenjie and others}, booktitle = {Proceedings of ACL}, year = {2023},
}
"""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: Positive = 0.05,
        whitening_groups: Count = 128,
        whitened_positives: Count = 2,
        gather_across_devices: bool = False,
        mini_batch_size: Count | None = None,
        mini_batch_num_tokens: Count | None = None,
    ) -> None:
        super().__init__(model, locals())
        whitened = WhitenedInfoNCE(temperature, whitening_groups, whitened_positives)
        self.terms = {"nce": whitened}


def shuffled_group_whitening(rows: Tensor, groups: int, order: Tensor) -> Tensor:
    r"""Whiten embeddings within groups of their components, which an order puts together.

    .. math:: y_{ig} = \Sigma_g^{-1/2} (x_{ig} - \mu_g), \qquad
        \Sigma_g = \frac{1}{B} \sum_i (x_{ig} - \mu_g) (x_{ig} - \mu_g)^\top

    :math:`x_{ig}` are the H / G components of row i in group g, and the root is the symmetric one
    (ZCA), so that each group of y has mean 0 and the identity as covariance. A direction in which
    the rows do not vary stays 0. Gradients flow through mean and covariance.

    Args:
        rows: (B, H).
        groups: G, a divisor of H.
        order: (H,), a permutation of the components; the first H / G of it are the first group.

    Returns:
        Tensor: (B, H), the components where they were; in float32 at least.

    Raises:
        UserError: G does not divide H.

    References:
        Zhuo et al., WhitenedCSE, ACL 2023, shuffled group whitening.
    """
    size = rows.shape[1]
    if size % groups:
        raise UserError(
            f"whitening_groups: expected a divisor of the embedding's size, {size}, found "
            f"{groups}. Choose another."
        )
    with torch.autocast(rows.device.type, enabled=False):
        own = rows.to(torch.promote_types(rows.dtype, torch.float32))
        grouped = own[:, order].unflatten(1, (groups, -1)).transpose(0, 1)
        centred = grouped - grouped.mean(dim=1, keepdim=True)
        root: Tensor = _InverseRoot.apply(centred.mT @ centred / len(rows))
        return (centred @ root).transpose(0, 1).flatten(1)[:, order.argsort()]


class _InverseRoot(torch.autograd.Function):
    r"""The symmetric :math:`\Sigma^{-1/2}` of each matrix of a batch, (G, D, D).

    The gradient is written out, for that of the eigenvectors is not defined where two eigenvalues
    are equal.
    """

    @staticmethod
    def forward(ctx: Any, covariance: Tensor) -> Tensor:
        variances, directions = torch.linalg.eigh(covariance)
        least = (_SMALLEST * variances[:, -1:]).clamp_min(_SMALLEST**2)
        roots = variances.clamp_min(least).sqrt()
        ctx.save_for_backward(roots, directions)
        return (directions / roots.unsqueeze(1)) @ directions.mT

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        roots, directions = ctx.saved_tensors
        one, other = roots.unsqueeze(1), roots.unsqueeze(2)
        # (f(p) - f(q)) / (p - q) of f(p) = 1 / sqrt(p), also for p = q.
        slopes = -1 / (one * other * (one + other))
        inside = directions.mT @ (gradient + gradient.mT) @ directions / 2
        return directions @ (slopes * inside) @ directions.mT
