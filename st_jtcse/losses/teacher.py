"""Similarities in a batch: the student's between its views, the teachers' from their vectors."""

from __future__ import annotations

from sentence_transformers.util.distributed import all_gather, all_gather_with_grad
from torch import Tensor, nn

from st_jtcse.errors import UserError
from st_jtcse.losses.functional import cosines, products


def view_similarities(view_a: Tensor, view_b: Tensor, gather: bool) -> Tensor:
    """Return the cosines of view a of sentence i and view b of sentence j, (B, B).

    Args:
        view_a: Embeddings of view a, (B, H).
        view_b: Embeddings of view b, (B, H).
        gather: Whether B counts the sentences of all processes. Every process then compares the union; the mean of
            their gradients is the union's gradient.
    """
    if gather:
        view_a, view_b = all_gather_with_grad(view_a.contiguous()), all_gather_with_grad(view_b.contiguous())
    return cosines(view_a, view_b)


def teacher_similarities(labels: Tensor | None, loss: nn.Module, gather: bool) -> Tensor:
    """Return the dot products of the label vectors, (B, B), without gradient.

    Args:
        labels: One vector a sentence, (B, D).
        loss: The loss that asks, for the message.
        gather: Whether B counts the sentences of all processes.

    Raises:
        UserError: There are no labels, or they are no vectors.
    """
    if labels is None or labels.dim() != 2:
        found = "none" if labels is None else f"labels of shape {tuple(labels.shape)}"
        raise UserError(
            f"{type(loss).__name__} needs one teacher vector a sentence as its label, found {found}; give "
            "teachers, or a column 'label' of vectors."
        )
    vectors = labels.detach().float()
    if gather:
        vectors = all_gather(vectors.contiguous())
    return products(vectors, vectors)
