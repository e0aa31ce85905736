"""The terms of the losses as pure functions of tensors.

Shapes: ``B`` sentences, ``H`` hidden size; all rows are (B, H) float tensors of one dtype. A batch
is encoded twice, in views a and b (independent dropout); row (i, a) is sentence i in view a.
Temperatures are τ > 0, and results are scalars unless a function says otherwise. `at_once` bounds
the memory of a mean, see :func:`mean_in_parts`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

# The authors' code replaces a cosine at or below zero, whose logarithm is undefined, by this
# constant.
MINIMUM_COSINE = 1e-4


def info_nce(
    view_a: Tensor,
    view_b: Tensor,
    temperature: float = 0.05,
    at_once: int | None = None,
) -> Tensor:
    r"""InfoNCE of the B rows of view a against those of view b, which is SimCSE's.

    .. math::

        L = -\frac{1}{B} \sum_i \log \frac{e^{sim(a_i, b_i) / \tau}}{\sum_j e^{sim(a_i, b_j) /
        \tau}}

    References:
        Gao et al., SimCSE, EMNLP 2021, Eq. 4.
    """

    def of(begin: int, end: int) -> Tensor:
        logits = cosines(view_a[begin:end], view_b) / temperature
        return F.cross_entropy(logits, torch.arange(begin, end, device=logits.device))

    return mean_in_parts(of, len(view_a), at_once)


def nt_xent(
    view_a: Tensor,
    view_b: Tensor,
    temperature: float = 0.05,
    at_once: int | None = None,
) -> Tensor:
    r"""NT-Xent over the 2B rows of two views.

    Row (i, a): its positive is (i, b), its candidates are all other rows, never itself:

    .. math::

        L = -\frac{1}{2B} \sum_r \log \frac{e^{sim(r, r^+) / \tau}}{\sum_{c \neq r} e^{sim(r, c) /
        \tau}}

    It is 0 for B = 1, where the positive is the only candidate.

    References:
        JTCSE (Zong et al.), Eq. 11, as the authors' code computes it; Chen et al., SimCLR, ICML
        2020, Eq. 1.
    """
    return interaction_nt_xent(view_a, view_b, view_a, view_b, temperature, at_once)


def interaction_nt_xent(
    query_a: Tensor,
    query_b: Tensor,
    candidate_a: Tensor,
    candidate_b: Tensor,
    temperature: float = 0.05,
    at_once: int | None = None,
) -> Tensor:
    r"""NT-Xent with queries from one tower and candidates from the other, the mean over 2B query
    rows.

    Row (i, a) of the queries: its positive is the candidate (i, b); the candidate (i, a), the same
    sentence in the same view, is excluded.

    References:
        JTCSE (Zong et al.), Eq. 12; TNCSE (Zong et al., AAAI 2025), Eq. 5.
    """
    queries, candidates = torch.cat([query_a, query_b]), torch.cat([candidate_a, candidate_b])
    columns = torch.arange(len(queries), device=queries.device)

    def of(begin: int, end: int) -> Tensor:
        logits = cosines(queries[begin:end], candidates) / temperature
        same_view = columns[begin:end, None] == columns
        return F.cross_entropy(
            logits.masked_fill(same_view, -torch.inf),
            columns.roll(len(query_a))[begin:end],
        )

    return mean_in_parts(of, len(queries), at_once)


def tensor_modulus(p: Tensor, q: Tensor) -> Tensor:
    r"""Tensor-modulus constraint of each pair of rows, (B,), in [0, 1]; 0 where both are zero.

    .. math:: L_{TMC}(p, q) = \frac{\|p - q\|}{\|p\| + \|q\|}

    With k = ‖q‖ / ‖p‖ and t = cos(p, q) this is :math:`\sqrt{1 + k^2 - 2kt} / (1 + k)`: 0 only for
    equal rows, where both direction and modulus agree.

    References:
        JTCSE (Zong et al.), Eq. 1 and 5; TNCSE (Zong et al., AAAI 2025).
    """
    moduli = torch.linalg.vector_norm(p, dim=-1) + torch.linalg.vector_norm(q, dim=-1)
    smallest = torch.finfo(moduli.dtype).tiny
    return torch.linalg.vector_norm(p - q, dim=-1) / moduli.clamp_min(smallest)


def interaction_tensor_modulus(
    h1_a: Tensor,
    h1_b: Tensor,
    h2_a: Tensor,
    h2_b: Tensor,
    p1_a: Tensor,
    p1_b: Tensor,
    p2_a: Tensor,
    p2_b: Tensor,
) -> Tensor:
    r"""Tensor-modulus constraint on two towers' pooler outputs p, weighted by how far their CLS
    states h disagree.

    .. math::

        L_{ICTM} = \frac{1}{B} \sum_i -\log sim(h_1^{(i,a)}, h_2^{(i,b)}) \; L_{TMC}(p_1^{(i,a)},
        p_2^{(i,b)})
                 + \frac{1}{B} \sum_i -\log sim(h_2^{(i,a)}, h_1^{(i,b)}) \; L_{TMC}(p_2^{(i,a)},
                 p_1^{(i,b)})

    Gradients flow through the coefficient. Where the cosine is not positive the coefficient is the
    constant -log(1e-4), without gradient, as in the authors' code. The authors' code also halves
    each ratio, the papers do not: weigh this term by 0.5 for the code's value.

    References:
        JTCSE (Zong et al.), Eq. 13 and 14; TNCSE (Zong et al., AAAI 2025), Eq. 6 and 7.
    """
    # JTCSE Eq. 13.
    one_to_two = _disagreement(h1_a, h2_b) * tensor_modulus(p1_a, p2_b)
    # JTCSE Eq. 14.
    two_to_one = _disagreement(h2_a, h1_b) * tensor_modulus(p2_a, p1_b)
    return one_to_two.mean() + two_to_one.mean()


def _disagreement(p: Tensor, q: Tensor) -> Tensor:
    cosine = F.cosine_similarity(p, q, dim=-1)
    return torch.where(cosine > 0, cosine, MINIMUM_COSINE).log().neg()


def mean_in_parts(of: Callable[[int, int], Any], count: int, at_once: int | None) -> Any:
    """Return a mean over anchors 0..count-1 from a function that gives it over begin..end-1, at
    most `at_once` of them.

    Their similarities with all candidates are then computed again for the backward pass, and never
    held all together.
    """
    if at_once is None or count <= at_once:
        return of(0, count)
    parts = [(begin, min(begin + at_once, count)) for begin in range(0, count, at_once)]
    return sum(
        (end - begin)
        / count
        * checkpoint(of, begin, end, use_reentrant=False, preserve_rng_state=False)
        for begin, end in parts
    )


def of_anchors(
    compare: Callable[[Tensor, Tensor], Tensor],
    p: Tensor,
    q: Tensor,
    begin: int,
    end: int,
) -> Tensor:
    """Compare rows begin..end-1 of p with all of q, turned so that each one's own partner is on the
    diagonal.
    """
    if end - begin == len(p):
        return compare(p, q)
    return compare(p[begin:end], q.roll(-begin, 0))


def cosines(p: Tensor, q: Tensor) -> Tensor:
    """Return the cosine of every row of p, (N, H), with every row of q, (M, H): (N, M), by
    :func:`products`.
    """
    return products(F.normalize(_full(p), dim=-1), F.normalize(_full(q), dim=-1))


def products(p: Tensor, q: Tensor) -> Tensor:
    """Return the dot product of every row of p, (N, H), with every row of q, (M, H): (N, M).

    In float32 at least, in autocast too.
    """
    # At τ = 0.05 a half-precision cosine is off by up to 0.08 in the logit, and similarities that
    # are ranked become equal: keep the product out of autocast.
    with torch.autocast(p.device.type, enabled=False):
        return _full(p) @ _full(q).T


def _full(rows: Tensor) -> Tensor:
    if rows.dtype in (torch.float16, torch.bfloat16):
        return rows.float()
    return rows
