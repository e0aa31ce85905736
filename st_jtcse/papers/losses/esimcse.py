"""ESimCSE: contrastive learning with past sentences as further negatives."""

from __future__ import annotations

from dataclasses import replace

from sentence_transformers import SentenceTransformer

from st_jtcse.losses.declaration import Count, Positive, Share
from st_jtcse.losses.terms import TWO_VIEWS, TwoViewLoss
from st_jtcse.papers.losses.margins import MarginInfoNCE
from st_jtcse.papers.losses.past_negatives import PastNegatives


class ESimCSELoss(TwoViewLoss):
    r"""InfoNCE among the batch and a queue of past sentences' embeddings.

    .. math:: L = -\frac{1}{B} \sum_i \log \frac{e^{sim(h_i^a, h_i^b) / \tau}}
        {\sum_j e^{sim(h_i^a, h_j^b) / \tau} + \sum_{n=1}^N e^{sim(h_i^a, q_n) / \tau}}

    The queue holds the last N embeddings q, first in, first out, and takes no gradient. A slow copy
    of the model makes them, which has no dropout and follows the model before each batch:
    :math:`\theta' \leftarrow \lambda \theta' + (1 - \lambda) \theta`. Queue and copy are part of
    every checkpoint, and the same in all processes. ESimCSE's other half is the view ``repeat``,
    which ``views`` names.

    Args:
        model: The model to train.
        temperature: τ > 0.
        queue_size: N; with a batch it must not exceed the training text, whose sentences would be
            negatives of themselves. ESimCSE: 2.5 batches.
        momentum: λ in [0, 1); it doubles the weights in memory. None: there is no copy, and the
            model's own embeddings of view b enter the queue.
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
        Without a queue: :class:`~st_jtcse.losses.SimCSELoss`. A queue that smooths instead:
        :class:`~st_jtcse.losses.ISCSELoss`.

    Example:
        ::

            from datasets import Dataset
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
            from st_jtcse.losses import ESimCSELoss

            model = SentenceTransformer("bert-base-uncased")
            train_dataset = Dataset.from_dict(
                {"sentence": ["It is sunny today.", "He drove to work."]}
            )
            loss = ESimCSELoss(model, queue_size=160, momentum=0.995)
            SentenceTransformerTrainer(model, train_dataset=train_dataset, loss=loss).train()

    References:
        Wu et al., ESimCSE, COLING 2022, momentum contrast; He et al., MoCo, CVPR 2020, Eq. 2.
    """

    declaration = replace(TWO_VIEWS, queue="queue_size")
    citation = """
@inproceedings{wu2022esimcse,
    title = {{ESimCSE}: Enhanced Sample Building Method for Contrastive Learning of Unsupervised
             Sentence Embedding},
    author = {Wu, Xing and others}, booktitle = {Proceedings of COLING}, year = {2022},
}
"""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: Positive = 0.05,
        queue_size: Count = 160,
        momentum: Share | None = 0.995,
        gather_across_devices: bool = False,
        mini_batch_size: Count | None = None,
        mini_batch_num_tokens: Count | None = None,
    ) -> None:
        super().__init__(model, locals())
        self.past = PastNegatives(model, queue_size, self.dimension, momentum)
        self.terms = {"nce": MarginInfoNCE(temperature, past=self.past)}
