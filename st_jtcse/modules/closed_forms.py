"""Maps of embeddings that are fitted in closed form: centring, principal axes, regression.

Each map is one affine layer and a normalisation, which Sentence-Transformers' own Dense and
Normalize compute. Notation: x is a unit vector as a row of H components, X the matrix of n of them,
μ their mean, Σ their covariance.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize
from torch import Tensor, nn

from st_jtcse.errors import UserError

Matrix = npt.NDArray[np.float64]
Floats = TypeVar("Floats", npt.NDArray[np.float32], npt.NDArray[np.float64])
Vectors = npt.NDArray[np.float32]


class Moments:
    """Sums over batches of vectors, and of targets beside them, in double precision.

    Their size depends on the number of components alone: any number of rows takes the memory of the
    largest batch.

    Example:
        ::

            moments = Moments()
            for batch in batches:
                moments.add(batch)
            centred = centring(moments)
    """

    def __init__(self) -> None:
        self.rows = 0
        # Behind the products the sums, and then the total weight.
        self._products = torch.zeros(1, 1, dtype=torch.double)
        self._cross = torch.zeros(1, 1, dtype=torch.double)

    def add(self, vectors: Any, targets: Any = None, weight: float = 1.0) -> None:
        """Add a batch.

        Args:
            vectors: (B, H), a tensor or an array.
            targets: What a regression maps them to, (B, K); None: the vectors themselves.
            weight: How often each row counts.

        Raises:
            UserError: A value is not finite, or a batch's shape does not fit the earlier ones.
        """
        inputs = _rows(vectors, "vectors")
        with_one = nn.functional.pad(inputs, (0, 1), value=1.0)
        weighted = with_one if weight == 1 else weight * with_one
        products = weighted.T @ with_one
        cross = products[:, :-1]
        if targets is not None:
            outputs = _rows(targets, "targets")
            if len(outputs) != len(inputs):
                raise UserError(
                    f"Expected a target for each of {len(inputs)} vectors, found {len(outputs)}; "
                    "give as many."
                )
            cross = weighted.T @ outputs
        known = self._cross.shape
        if self.rows and cross.shape != known:
            raise UserError(
                f"Expected vectors of {known[0] - 1} components and targets of {known[1]} as in "
                f"the batches before, found {cross.shape[0] - 1} and {cross.shape[1]}; give "
                "vectors of one model."
            )
        self._products = self._products + products
        self._cross = self._cross + cross
        self.rows += len(inputs)

    @property
    def mean(self) -> Tensor:
        """The vectors' mean μ, (H,)."""
        return self._products[-1, :-1] / self._products[-1, -1]

    @property
    def covariance(self) -> Tensor:
        """The vectors' covariance Σ, divided by their number, (H, H)."""
        second = self._products[:-1, :-1] / self._products[-1, -1]
        return second - self.mean.outer(self.mean)

    @property
    def gram(self) -> Tensor:
        """The vectors' products X'X, (H, H)."""
        return self._products[:-1, :-1]

    @property
    def cross(self) -> Tensor:
        """The products of vectors and targets X'Y, (H, K)."""
        return self._cross[:-1]


@dataclass(frozen=True, eq=False)
class AffineMap:
    r"""A fitted map of unit vectors to unit vectors.

    .. math:: y = \frac{x W + b}{\|x W + b\|}

    Args:
        matrix: W, (H, K).
        bias: b, (K,).

    Example:
        ::

            mapped = centring(moments)(model.encode(sentences))
    """

    matrix: Matrix
    bias: Matrix

    def __call__(self, vectors: npt.NDArray[Any]) -> Vectors:
        """Map vectors of any length, (n, H) to (n, K); a vector without direction becomes 0."""
        if vectors.ndim != 2 or vectors.shape[1] != len(self.matrix):
            raise UserError(
                f"The map reads vectors of {len(self.matrix)} components, found an array of shape "
                f"{vectors.shape}; give vectors of the model that it was fitted on."
            )
        mapped = unit_rows(vectors.astype(np.float64)) @ self.matrix + self.bias
        return unit_rows(mapped).astype(np.float32)

    def mixed(self, share: float) -> AffineMap:
        """Return the map with a share of its weights and the rest of the identity's.

        A share of 1 is the map itself, and 0 changes nothing. Raises UserError where the map
        changes the number of components.
        """
        size, found = self.matrix.shape
        if size != found:
            raise UserError(
                f"A map from {size} to {found} components cannot be mixed with the identity; take "
                "it as it is, or choose targets of the vectors' own size."
            )
        return AffineMap((1 - share) * np.eye(size) + share * self.matrix, share * self.bias)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `matrix` and `bias` as float32 into a safetensors file."""
        matrix, bias = (np.ascontiguousarray(part, np.float32) for part in (self.matrix, self.bias))
        save_file({"matrix": matrix, "bias": bias}, os.fspath(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AffineMap:
        """Read what :meth:`save` wrote; raises UserError where a file is something else."""
        try:
            found = load_file(os.fspath(path))
        except (SafetensorError, OSError) as error:
            raise UserError(
                f"{path} cannot be read as safetensors ({error}); name a map."
            ) from None
        matrix, bias = found.get("matrix"), found.get("bias")
        if matrix is None or bias is None or matrix.shape[1:] != bias.shape:
            raise UserError(
                f"{Path(path)}: expected the arrays 'matrix' (H, K) and 'bias' (K), found "
                f"{ {name: array.shape for name, array in found.items()} }; name a map's file."
            )
        return cls(matrix.astype(np.float64), bias.astype(np.float64))


def centring(moments: Moments) -> AffineMap:
    r"""Subtract the text's mean.

    .. math:: x - \mu
    """
    mean = moments.mean.numpy()
    return AffineMap(np.eye(len(mean)), -mean)


def without_mean_direction(moments: Moments) -> AffineMap:
    r"""Subtract each vector's projection on the text's mean.

    .. math:: x - (x \cdot \hat\mu) \hat\mu, \qquad \hat\mu = \mu / \|\mu\|

    Raises:
        UserError: The mean is zero.

    References:
        Ren et al., Correcting Mean Bias in Text Embeddings: A Refined Renormalization with
        Training-Free Improvements on MMTEB, 2025, R2 (R1 is :func:`centring`).
    """
    mean = moments.mean.numpy()
    length = np.linalg.norm(mean)
    if length < 1e-12:
        raise UserError("The mean of the vectors is zero, so it has no direction; choose centring.")
    direction = mean / length
    return AffineMap(np.eye(len(mean)) - np.outer(direction, direction), np.zeros(len(mean)))


def without_top(moments: Moments, count: int) -> AffineMap:
    r"""Subtract the mean and the projections on the principal axes of the largest variance, U_D.

    .. math:: (x - \mu)(I - U_D U_D^\top)

    Args:
        moments: Of the text's vectors.
        count: The number of axes D, less than H.

    References:
        Mu and Viswanath, All-but-the-Top: Simple and Effective Postprocessing for Word
        Representations, ICLR 2018.
    """
    variances, axes = _axes(moments)
    _expect(0 < count < len(variances), f"between 1 and {len(variances) - 1} axes", count)
    top = axes[:, len(variances) - count :]
    return _about_the_mean(moments, np.eye(len(variances)) - top @ top.T)


def scaled_axes(moments: Moments, exponent: float, ridge: float = 1e-3) -> AffineMap:
    r"""Scale the principal axes by a power of their variance: a < 0 whitens in part, a > 0 does the
    opposite.

    .. math:: s (x - \mu) U (\Lambda + \epsilon \bar\lambda I)^{a} U^\top,
        \qquad \Sigma = U \Lambda U^\top

    The factor s keeps the text's mean squared length. A turn by U' at the end changes no cosine and
    keeps each component near its own.

    Args:
        moments: Of the text's vectors.
        exponent: a; -1/2 whitens, 0 centres.
        ridge: ε, the part of the mean variance that each axis gets on top, so that axes without
            variance are not scaled without bounds.
    """
    variances, axes = _axes(moments)
    _expect(ridge > 0, "a ridge above 0", ridge)
    if variances.mean() < 1e-12:
        raise UserError("All vectors are the same, so they have no principal axes; add other text.")
    scales = (variances + ridge * variances.mean()) ** exponent
    scales *= np.sqrt(variances.sum() / (variances * scales**2).sum())
    return _about_the_mean(moments, (axes * scales) @ axes.T)


def regression(moments: Moments, ridge: float, towards_identity: bool) -> AffineMap:
    r"""Map vectors to their targets by ridge regression, which shrinks towards the identity or
    towards nothing.

    .. math:: W = (X^\top X + \lambda I)^{-1} (X^\top Y + \lambda I)
        \qquad \text{or} \qquad W = (X^\top X + \lambda I)^{-1} X^\top Y

    Rows that were added without targets are their own: they hold the map at its place there.

    Args:
        moments: Of the text's vectors, and of their targets.
        ridge: λ, in rows of the text: X'X grows with their number, and λ does not.
        towards_identity: Whether the targets stand in the vectors' own coordinates, such as vectors
            drawn to their neighbours, and what the text does not show stays as it is. Another
            model's coordinates mean something else, even where there are as many.

    Raises:
        UserError: The identity is asked for between different sizes, or without a ridge the
            vectors vary in fewer directions than they have components.
    """
    gram, cross = moments.gram.numpy(), moments.cross.numpy()
    size, found = cross.shape
    _expect(ridge >= 0, "a ridge of 0 or more", ridge)
    if towards_identity and size != found:
        raise UserError(
            f"Targets of {found} components are not in the coordinates of vectors of {size}, so "
            "the map cannot shrink towards the identity; let it shrink towards nothing."
        )
    rank = np.linalg.matrix_rank(gram, hermitian=True) if ridge == 0 else size
    if rank < size:
        raise UserError(
            f"The vectors vary in {rank} of their {size} directions only, so the regression has "
            "many solutions; give a ridge above 0."
        )
    prior = ridge * np.eye(size)
    wanted = cross + prior if towards_identity else cross
    return AffineMap(np.linalg.solve(gram + prior, wanted), np.zeros(found))


def merged(maps: Iterable[AffineMap]) -> list[AffineMap]:
    """Return as few maps that do the same, one after the other.

    A map without a bias joins the one before it, since a length in between changes no direction.
    """
    result: list[AffineMap] = []
    for each in maps:
        if result and not each.bias.any():
            before = result.pop()
            each = AffineMap(before.matrix @ each.matrix, before.bias @ each.matrix)
        result.append(each)
    return result


def append_maps(
    model: SentenceTransformer, maps: Sequence[AffineMap], *, normalize: bool = False
) -> None:
    """Append maps to a model as Dense and Normalize modules of Sentence-Transformers.

    The model then loads without this package. Its modules compute in the model's own number format.

    Args:
        model: Its embeddings are of the size and the prompt that the maps were fitted on.
        maps: In their order.
        normalize: Whether a model whose embeddings are not of length 1 gets one more Normalize
            before the maps. Its embeddings then have length 1, so its dot products and distances
            change.

    Raises:
        UserError: The model does not end with Normalize and `normalize` is False, the sizes do not
            fit, or the model truncates its embeddings.

    Example:
        ::

            vectors = model.encode(sentences)
            moments = Moments()
            moments.add(vectors)
            append_maps(model, [centring(moments)])
    """
    _check_sizes(model, maps)
    modules: list[nn.Module] = []
    if not isinstance(model[-1], Normalize):
        if not normalize:
            raise UserError(
                "The model's embeddings are not of length 1 and a map's are, so its dot products "
                "and distances would change; say normalize=True if you compare by the cosine."
            )
        modules.append(Normalize())
    for each in maps:
        modules += [_dense(each), Normalize()]
    number_format = next(model.parameters()).dtype
    for module in modules:
        model.append(module.to(model.device, number_format))


def _check_sizes(model: SentenceTransformer, maps: Sequence[AffineMap]) -> None:
    if model.truncate_dim is not None:
        raise UserError(
            f"The model truncates its embeddings to {model.truncate_dim} components, after all its "
            "modules; load it without truncate_dim, fit the maps there, and truncate afterwards."
        )
    sizes = [int(model.get_embedding_dimension() or 0), *(len(each.bias) for each in maps)]
    for size, each in zip(sizes, maps):
        if size != len(each.matrix):
            raise UserError(
                f"A map reads vectors of {len(each.matrix)} components, and would get {size}; fit "
                "it on the model's own embeddings."
            )


def unit_rows(vectors: Floats) -> Floats:
    """Return vectors scaled to length 1; one of length 0 stays 0."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


def _rows(vectors: Any, name: str) -> Tensor:
    rows = torch.as_tensor(vectors).detach().cpu().double()
    if rows.ndim != 2 or not len(rows):
        raise UserError(
            f"Expected {name} as rows of a matrix, found an array of shape {tuple(rows.shape)}; "
            "give one vector a text."
        )
    finite = rows.isfinite().all(dim=1)
    if not finite.all():
        row = int(finite.byte().argmin()) + 1
        raise UserError(f"Row {row} of the {name} is not finite; leave it out.")
    return rows


def _axes(moments: Moments) -> tuple[Matrix, Matrix]:
    """Return the variances, smallest first and none below 0, and the principal axes as columns."""
    variances, axes = np.linalg.eigh(moments.covariance.numpy())
    return np.maximum(variances, 0.0), axes


def _about_the_mean(moments: Moments, matrix: Matrix) -> AffineMap:
    return AffineMap(matrix, -moments.mean.numpy() @ matrix)


def _dense(fitted: AffineMap) -> Dense:
    weight, bias = (torch.from_numpy(np.float32(part)) for part in (fitted.matrix.T, fitted.bias))
    size, found = fitted.matrix.shape
    return Dense(
        size,
        found,
        activation_function=None,
        init_weight=weight.contiguous(),
        init_bias=bias,
    )


def _expect(holds: bool, expected: str, found: float) -> None:
    if not holds:
        raise UserError(f"Expected {expected}, found {found:g}; change it.")
