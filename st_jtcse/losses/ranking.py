"""Ranking terms over similarities, as pure functions of tensors; each returns a scalar.

S, the student's, compares view a of sentence i with view b of sentence j, (B, B); T, the teacher's,
is (B, B) too. Of all but CoSENT's, which compares every pair with every other one, their first rows
will do: a mean over those sentences. Temperatures τ and scales λ are above 0. Consistency, ListNet
and ListMLE are those of Liu et al., RankCSE, ACL 2023; CoSENT is that of Huang et al., TASLP 2024,
Eq. 8.
"""

from __future__ import annotations

from typing import Literal

import torch
from sentence_transformers.sentence_transformer.losses import CoSENTLoss
from torch import Tensor

Ranking = Literal["listnet", "listmle", "cosent"]


def follow(
    form: Ranking,
    student: Tensor,
    teacher: Tensor,
    temperature: float,
    teacher_temperature: float,
    scale: float,
) -> Tensor:
    """Return the term of that name, by which S follows T; the second temperature is ListNet's, the
    scale CoSENT's.
    """
    if form == "listnet":
        return listnet(student, teacher, temperature, teacher_temperature)
    if form == "listmle":
        return listmle(student, teacher, temperature)
    return cosent_in_batch(student, teacher, scale)


def cosent(scores: Tensor, labels: Tensor, scale: float) -> Tensor:
    r"""CoSENT over given scores s, (N,): those of higher labels l, (N,), shall be higher; only
    their order counts.

    .. math:: \log\Big(1 + \sum_{l_i > l_k} e^{\lambda (s_k - s_i)}\Big)

    Computed by Sentence-Transformers' CoSENTLoss in O(N log N) time and O(N) memory. Equal labels
    are not compared: 0 if all are.
    """
    # The parent's arithmetic, on scores that are there already.
    loss = CoSENTLoss(None, scale=scale, similarity_fct=lambda given, _: given)  # type: ignore[arg-type]
    return loss.compute_loss_from_embeddings([scores, scores], labels)


def cosent_in_batch(student: Tensor, teacher: Tensor, scale: float) -> Tensor:
    r"""CoSENT over the B(B - 1) ordered pairs of a batch, S ranked by T, whose values are the
    labels.
    """
    return cosent(_without_diagonal(student).flatten(), _without_diagonal(teacher).flatten(), scale)


def ranking_consistency(
    student: Tensor,
    temperature: float,
    reverse: Tensor | None = None,
) -> Tensor:
    r"""Jensen-Shannon divergence, in [0, log 2], of the two views' lists of similarities, mean over
    the sentences.

    .. math:: \frac{1}{B} \sum_i JS\big(\mathrm{softmax}_{j \ne i}(S_{ij} / \tau),\,
        \mathrm{softmax}_{j \ne i}(S_{ji} / \tau)\big)

    `reverse` holds S_{ji} where S has its first rows only.
    """
    first = _log_lists(student, temperature)
    second = _log_lists(student.T if reverse is None else reverse, temperature)
    # log of the mean of both, without leaving the logarithm
    mean = torch.logaddexp(first, second) - torch.log(
        torch.tensor(2.0, dtype=student.dtype, device=student.device)
    )
    divergence = first.exp() * (first - mean) + second.exp() * (second - mean)
    return divergence.sum(dim=1).mean() / 2


def listnet(
    student: Tensor,
    teacher: Tensor,
    temperature: float,
    teacher_temperature: float,
) -> Tensor:
    r"""ListNet: cross-entropy of the student's top-one distribution against the teacher's, mean
    over the sentences.

    .. math:: -\frac{1}{B} \sum_i \sum_{j \ne i}
        \mathrm{softmax}_j(T_{ij} / \tau_T) \log \mathrm{softmax}_j(S_{ij} / \tau)
    """
    target = _log_lists(teacher, teacher_temperature).exp()
    return -(target * _log_lists(student, temperature)).sum(dim=1).mean()


def listmle(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    r"""ListMLE: negative log-likelihood of the teacher's order under the student, mean over the
    sentences.

    .. math:: -\frac{1}{B} \sum_i \sum_k \log
        \frac{e^{S_{i \pi_k} / \tau}}{\sum_{m \ge k} e^{S_{i \pi_m} / \tau}}

    π sorts sentence i's others by the teacher's similarity, the most similar first; equal ones keep
    their order in the batch.
    """
    lists, ranks = (
        _without_diagonal(similarities) for similarities in (student / temperature, teacher)
    )
    order = ranks.argsort(dim=1, descending=True, stable=True)
    ranked = lists.gather(1, order)
    rest = torch.logcumsumexp(ranked.flip(1), dim=1).flip(1)
    return (rest - ranked).sum(dim=1).mean()


def _without_diagonal(similarities: Tensor) -> Tensor:
    """Leave out each sentence's similarity with itself: (B, B - 1)."""
    # By places that the shape alone tells: where a mask is true, an accelerator would have to be
    # asked.
    columns = torch.arange(similarities.shape[1] - 1, device=similarities.device)
    rows = torch.arange(len(similarities), device=similarities.device)
    return similarities.gather(1, columns + (columns >= rows[:, None]))


def _log_lists(similarities: Tensor, temperature: float) -> Tensor:
    return (_without_diagonal(similarities) / temperature).log_softmax(dim=1)
