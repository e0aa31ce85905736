"""A queue of past embeddings as further negatives, and the slow copy of the model that may make
them.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather
from torch import Tensor, nn

from st_jtcse import processes
from st_jtcse.errors import UserError
from st_jtcse.losses.terms import Batch
from st_jtcse.losses.views import BOTH_VIEWS, encode_views


class PastNegatives(nn.Module):
    r"""The last N embeddings of a training, first in, first out; no gradient flows into them.

    With a momentum they are a slow copy's, which has no dropout and follows the model before each
    batch:

    .. math:: \theta' \leftarrow \lambda \theta' + (1 - \lambda) \theta

    All processes have the same queue: a batch enters it in the order of its processes. Queue and
    copy are part of the loss's state, so that they are saved with it.

    Args:
        model: The model that is trained.
        size: N.
        dimension: Size of its embeddings.
        momentum: λ in [0, 1); None: the model's own embeddings of view b enter the queue.

    References:
        Wu et al., ESimCSE, COLING 2022, momentum contrast; He et al., MoCo, CVPR 2020, Eq. 2.
    """

    queue: Tensor
    filled: Tensor

    def __init__(
        self,
        model: SentenceTransformer,
        size: int,
        dimension: int | None,
        momentum: float | None = None,
    ) -> None:
        super().__init__()
        self._momentum = momentum
        self.slow = None
        if momentum is not None:
            self.slow = copy.deepcopy(model).requires_grad_(False)
        self.register_buffer("queue", torch.zeros(size, dimension or 0))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))

    def rows(self) -> Tensor:
        """Return what is in the queue, (0..N, H), the oldest first."""
        return self.queue[len(self.queue) - int(self.filled) :]

    @torch.no_grad()
    def take(self, batch: Batch) -> None:
        """Put a batch behind the queue, by view b of its embeddings or by the copy's of the same
        texts.
        """
        loss, view_b = batch.loss, batch.views[1]
        if view_b.shape[1] != self.queue.shape[1]:
            raise UserError(
                f"The queue of past embeddings holds whole ones of {self.queue.shape[1]} "
                f"components, found {view_b.shape[1]}; leave out MatryoshkaLoss, or choose a loss "
                "without a queue."
            )
        new = view_b.detach()
        if self.slow is not None:
            self._follow(self.slow, loss.model)
            # Without dropout the views are equal where none are made.
            features = {**batch.features, BOTH_VIEWS: True}
            parts = encode_views(self.slow.eval(), features, loss.length_chunks)
            of_views = parts["sentence_embedding"].split(len(new))
            new = of_views[min(1, len(of_views) - 1)]
        if processes.count() > 1:
            new = all_gather(new.contiguous())
        rows = torch.cat([self.queue, new.to(self.queue)])
        self.queue.copy_(rows[-len(self.queue) :])
        self.filled.fill_(min(int(self.filled) + len(new), len(self.queue)))

    def _follow(self, slow: nn.Module, model: Any) -> None:
        copied, own = list(slow.parameters()), list(model.parameters())
        if [weight.shape for weight in copied] != [weight.shape for weight in own]:
            raise UserError(
                "momentum follows a model's own weights, found others beside them; leave out "
                "model.lora."
            )
        share = 1 - float(self._momentum or 0.0)
        for mine, theirs in zip(copied, own):
            mine.lerp_(theirs.to(mine), share)
