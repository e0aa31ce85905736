"""The terms of the losses as pure functions of tensors.

Shapes: ``B`` sentences, ``H`` hidden size; all rows are (B, H) float tensors of one dtype. A batch is encoded twice, in
views a and b (independent dropout); row (i, a) is sentence i in view a. Temperatures are τ > 0, and results are scalars
unless a function says otherwise.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

# The authors' code replaces a cosine at or below zero, whose logarithm is undefined, by this constant.
MINIMUM_COSINE = 1e-4


def nt_xent(view_a: Tensor, view_b: Tensor, temperature: float = 0.05) -> Tensor:
    r"""NT-Xent over the 2B rows of two views.

    Row (i, a): its positive is (i, b), its candidates are all other rows, never itself:

    .. math:: L = -\frac{1}{2B} \sum_r \log \frac{e^{sim(r, r^+) / \tau}}{\sum_{c \neq r} e^{sim(r, c) / \tau}}

    It is 0 for B = 1, where the positive is the only candidate.

    References:
        JTCSE (Zong et al.), Eq. 11, as the authors' code computes it; Chen et al., SimCLR, ICML 2020, Eq. 1.
    """
    return interaction_nt_xent(view_a, view_b, view_a, view_b, temperature)


def interaction_nt_xent(
    query_a: Tensor, query_b: Tensor, candidate_a: Tensor, candidate_b: Tensor, temperature: float = 0.05
) -> Tensor:
    r"""NT-Xent with queries from one tower and candidates from the other, the mean over 2B query rows.

    Row (i, a) of the queries: its positive is the candidate (i, b); the candidate (i, a), the same sentence in the
    same view, is excluded.

    References:
        JTCSE (Zong et al.), Eq. 12; TNCSE (Zong et al., AAAI 2025), Eq. 5.
    """
    logits = cosines(torch.cat([query_a, query_b]), torch.cat([candidate_a, candidate_b])) / temperature
    rows = torch.arange(len(logits), device=logits.device)
    same_view = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    return F.cross_entropy(logits.masked_fill(same_view, -torch.inf), rows.roll(len(query_a)))


def tensor_modulus(p: Tensor, q: Tensor) -> Tensor:
    r"""Tensor-modulus constraint of each pair of rows, (B,), in [0, 1]; 0 where both are zero.

    .. math:: L_{TMC}(p, q) = \frac{\|p - q\|}{\|p\| + \|q\|}

    With k = ‖q‖ / ‖p‖ and t = cos(p, q) this is :math:`\sqrt{1 + k^2 - 2kt} / (1 + k)`: 0 only for equal rows, where
    both direction and modulus agree.

    References:
        JTCSE (Zong et al.), Eq. 1 and 5; TNCSE (Zong et al., AAAI 2025).
    """
    moduli = torch.linalg.vector_norm(p, dim=-1) + torch.linalg.vector_norm(q, dim=-1)
    smallest = torch.finfo(moduli.dtype).tiny
    return torch.linalg.vector_norm(p - q, dim=-1) / moduli.clamp_min(smallest)


def interaction_tensor_modulus(
    h1_a: Tensor, h1_b: Tensor, h2_a: Tensor, h2_b: Tensor, p1_a: Tensor, p1_b: Tensor, p2_a: Tensor, p2_b: Tensor
) -> Tensor:
    r"""Tensor-modulus constraint on two towers' pooler outputs p, weighted by how far their CLS states h disagree.

    .. math::

        L_{ICTM} = \frac{1}{B} \sum_i -\log sim(h_1^{(i,a)}, h_2^{(i,b)}) \; L_{TMC}(p_1^{(i,a)}, p_2^{(i,b)})
                 + \frac{1}{B} \sum_i -\log sim(h_2^{(i,a)}, h_1^{(i,b)}) \; L_{TMC}(p_2^{(i,a)}, p_1^{(i,b)})

    Gradients flow through the coefficient. Where the cosine is not positive the coefficient is the constant
    -log(1e-4), without gradient, as in the authors' code. The authors' code also halves each ratio, the papers do
    not: weigh this term by 0.5 for the code's value.

    References:
        JTCSE (Zong et al.), Eq. 13 and 14; TNCSE (Zong et al., AAAI 2025), Eq. 6 and 7.
    """
    one_to_two = _disagreement(h1_a, h2_b) * tensor_modulus(p1_a, p2_b)  # JTCSE Eq. 13
    two_to_one = _disagreement(h2_a, h1_b) * tensor_modulus(p2_a, p1_b)  # JTCSE Eq. 14
    return one_to_two.mean() + two_to_one.mean()


def _disagreement(p: Tensor, q: Tensor) -> Tensor:
    cosine = F.cosine_similarity(p, q, dim=-1)
    return torch.where(cosine > 0, cosine, MINIMUM_COSINE).log().neg()


def cosines(p: Tensor, q: Tensor) -> Tensor:
    """Return the cosine of every row of p, (N, H), with every row of q, (M, H): (N, M), by :func:`products`."""
    return products(F.normalize(_full(p), dim=-1), F.normalize(_full(q), dim=-1))


def products(p: Tensor, q: Tensor) -> Tensor:
    """Return the dot product of every row of p, (N, H), with every row of q, (M, H): (N, M).

    In float32 at least, in autocast too.
    """
    # At τ = 0.05 a half-precision cosine is off by up to 0.08 in the logit, and similarities that are ranked become
    # equal: keep the product out of autocast.
    with torch.autocast(p.device.type, enabled=False):
        return _full(p) @ _full(q).T


def _full(rows: Tensor) -> Tensor:
    return rows.float() if rows.dtype in (torch.float16, torch.bfloat16) else rows
