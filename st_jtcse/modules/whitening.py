"""Whitening: a linear layer that gives the embeddings of a text mean 0 and the identity as
covariance.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from sentence_transformers.sentence_transformer.modules import Dense
from torch import Tensor

from st_jtcse.errors import UserError
from st_jtcse.modules.closed_forms import Moments

# Of the largest variance: below it a direction is noise of single precision.
_SMALLEST = 1e-10


def whitening_of(embeddings: Iterable[Tensor], dimensions: int) -> Dense:
    r"""Fit the layer that whitens embeddings x of H components to k.

    .. math:: y = \Lambda_k^{-1/2} U_k^\top (x - \mu), \qquad \Sigma = U \Lambda U^\top

    μ and Σ are the mean and the covariance (divided by the number of texts), both from one pass in
    double precision; U_k are the eigenvectors of the k largest eigenvalues. The layer is ST's own
    Dense with a bias and no activation.

    Args:
        embeddings: Batches, (B, H) each; at least k + 1 different embeddings.
        dimensions: k, at most H.

    Returns:
        Dense: From H to k components.

    Raises:
        UserError: The embeddings vary in fewer than k directions.

    Example:
        ::

            from st_jtcse.modules import load_sentence_transformer, whitening_of

            model = load_sentence_transformer("path/to/model")
            model.append(whitening_of([model.encode(sentences, convert_to_tensor=True)], 256))

    References:
        Su et al., Whitening Sentence Representations for Better Semantics and Faster Retrieval,
        2021, Eq. 7 and 8.
    """
    moments = Moments()
    for batch in embeddings:
        moments.add(batch)
    mean = moments.mean
    variances, directions = torch.linalg.eigh(moments.covariance)
    varying = int((variances > _SMALLEST * variances[-1].clamp_min(1e-300)).sum())
    if varying < dimensions:
        raise UserError(
            f"the text's embeddings vary in {varying} directions only; whiten to {varying} "
            "dimensions."
        )
    kept = range(len(variances) - 1, len(variances) - 1 - dimensions, -1)
    weight = (directions[:, kept] / variances[kept].sqrt()).T.float().contiguous()
    # Of the rounded weight, so that the mean is taken to 0 by what is saved.
    bias = (-weight.double() @ mean).float()
    return Dense(
        len(mean), dimensions, activation_function=None, init_weight=weight, init_bias=bias
    )
