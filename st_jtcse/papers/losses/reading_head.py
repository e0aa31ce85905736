"""A second encoder that reads each sentence from its embedding, in training only."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForMaskedLM, AutoTokenizer, DataCollatorForLanguageModeling

from st_jtcse import processes
from st_jtcse.errors import UserError
from st_jtcse.losses.terms import Batch, Term
from st_jtcse.losses.views import BIASES, whole_dimension
from st_jtcse.modules import loading
from st_jtcse.towers.modeling_tower_layers import LAYERS

# Of the masked tokens' reader: the layers behind the embedding's place.
_HEAD_LAYERS = 2


class Tokens(NamedTuple):
    """A batch of tokens once for each of k views, (kB, T) each."""

    ids: Tensor
    mask: Tensor
    words: Tensor  # which are neither special tokens nor padding
    chosen: Tensor  # which words are masked
    masked: Tensor  # the tokens with these masked, as for BERT


class ReadingHead(nn.Module):
    r"""A copy of the encoder, g, in which the sentence's embedding h takes the place of the first
    token's state.

    Gradients flow into the copy and, by h alone, into the model. The copy is part of the loss's
    state, so that it is saved with it; all processes have the same.

    Args:
        model: The model that is trained.
        mask_share: Share of the words that are masked.

    Raises:
        UserError: The model does not go with it.
    """

    # Which of the copy's layers takes the embedding.
    place = 0

    def __init__(self, model: SentenceTransformer, mask_share: float) -> None:
        super().__init__()
        self._kind, encoder = _encoder(model)
        self._masking = DataCollatorForLanguageModeling(model.tokenizer, mlm_probability=mask_share)
        self.copied = copy.deepcopy(encoder).train()

    def answer(self, size: int) -> None:
        """Put a layer of that many outputs behind the copy, and train all alike in every
        process.
        """
        width = self.copied.config.hidden_size
        self.output = nn.Linear(width, size, bias=False)
        # The same in every process, whatever was drawn before.
        drawn = torch.Generator().manual_seed(0)
        nn.init.normal_(self.output.weight, std=width**-0.5, generator=drawn)
        for weight in self.parameters():
            if weight.requires_grad:
                weight.register_hook(processes.mean)

    def forward(self, embeddings: Tensor, features: dict[str, Any]) -> Tensor:
        """Return the loss of reading a batch of tokens, (B, T), from k views' embeddings of it,
        (kB, H).

        Raises UserError if there are no rows of tokens, or the embeddings are not whole.
        """
        no_rows = "attention_mask" not in features or BIASES in features
        if no_rows or embeddings.shape[1] != self.output.in_features:
            raise UserError(
                "A reading head takes rows of tokens and whole embeddings; leave out flash "
                "attention, templates and MatryoshkaLoss, or choose another loss."
            )
        times = len(embeddings) // len(features["input_ids"])
        ids, mask = (features[key].repeat(times, 1) for key in ("input_ids", "attention_mask"))
        special = torch.tensor(self._masking.tokenizer.all_special_ids, device=ids.device)
        words = mask.bool() & ~torch.isin(ids, special)
        masked, labels = self._masking.torch_mask_tokens(
            ids.cpu().clone(),
            special_tokens_mask=~words.cpu(),
        )
        chosen = labels.to(ids.device) >= 0
        tokens = Tokens(ids, mask, words, chosen, masked.to(ids.device))
        edited = self.edited(tokens)
        return self.loss_of(self._read(embeddings, edited, mask), tokens, edited)

    def edited(self, tokens: Tokens) -> Tensor:
        """Return what the copy reads, (kB, T)."""
        return tokens.masked

    def loss_of(self, read: Tensor, tokens: Tokens, edited: Tensor) -> Tensor:
        """Return the loss of what the copy says of each token, (kB, T, any)."""
        raise NotImplementedError

    def _read(self, embeddings: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        way = self._kind(self.copied, input_ids=ids, attention_mask=mask)
        hidden = way.start
        for number, layer in enumerate(way.layers):
            if number == self.place:
                hidden = torch.cat([embeddings.unsqueeze(1), hidden[:, 1:]], dim=1)
            hidden = way.run(layer, hidden)
        said: Tensor = self.output(way.end(hidden))
        return said


class ReplacedTokens(ReadingHead):
    r"""DiffCSE's: some of the words w are replaced, w', and the copy tells which, y = 1, from the
    rest.

    .. math:: L = -\frac{1}{|w|} \sum_t \log \sigma((2 y_t - 1) u^\top g(h, w')_t)

    Args:
        model: The model that is trained.
        mask_share: Share of the words that are replaced.
        generator: Name or folder of a masked language model, which is not trained: its likeliest
            words replace others. None: words of the batch do, drawn at random.

    Raises:
        UserError: The model or the generator does not go with it.

    References:
        Chuang et al., DiffCSE, NAACL 2022, Sec. 3.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        mask_share: float,
        generator: str | None = None,
    ) -> None:
        super().__init__(model, mask_share)
        # In a list: what is not trained is no part of the state.
        self._generator = [_generator(generator, model.tokenizer)] if generator else []
        self.answer(1)

    def edited(self, tokens: Tokens) -> Tensor:
        """Return the tokens with others in the places of those that were chosen."""
        ids = tokens.ids
        if not self._generator:
            own = ids[tokens.words]
            drawn = torch.randint(max(len(own), 1), (int(tokens.chosen.sum()),))
            return ids.masked_scatter(tokens.chosen, own[drawn.to(ids.device)])
        generator = self._generator[0].to(ids.device)
        with torch.no_grad():
            proposed = generator(input_ids=tokens.masked, attention_mask=tokens.mask).logits
        return torch.where(tokens.chosen, proposed.argmax(dim=-1), ids)

    def loss_of(self, read: Tensor, tokens: Tokens, edited: Tensor) -> Tensor:
        """Return the mean over the words of telling whether they were replaced."""
        scores = read[tokens.words].squeeze(-1)
        replaced = (edited != tokens.ids)[tokens.words].to(scores)
        total = F.binary_cross_entropy_with_logits(scores, replaced, reduction="sum")
        return total / tokens.words.sum().clamp_min(1)


class MaskedTokens(ReadingHead):
    r"""InfoCSE's: some of the words w, m, are masked as BERT's are, and the copy fills them in.

    .. math:: L = -\frac{1}{|m|} \sum_{t \in m} \log softmax(E U g(h, w')_t)_{w_t}

    The lower half of the copy's layers reads w' and is not trained, h comes in behind it, and the
    last two layers and the word embeddings E fill in the words.

    References:
        Wu et al., InfoCSE, Findings of EMNLP 2022, auxiliary network.
    """

    def __init__(self, model: SentenceTransformer, mask_share: float) -> None:
        super().__init__(model, mask_share)
        layers = next(part for part in self.copied.modules() if isinstance(part, nn.ModuleList))
        self.place = len(layers) // 2
        del layers[self.place : -_HEAD_LAYERS]
        self.copied.requires_grad_(False)
        layers[self.place :].requires_grad_(True)
        self.answer(self.copied.get_input_embeddings().embedding_dim)

    def loss_of(self, read: Tensor, tokens: Tokens, edited: Tensor) -> Tensor:
        """Return the mean over the masked words of filling them in."""
        scores = read[tokens.chosen] @ self.copied.get_input_embeddings().weight.T
        total = F.cross_entropy(scores, tokens.ids[tokens.chosen], reduction="sum")
        return total / tokens.chosen.sum().clamp_min(1)


@dataclass(eq=False)
class Reading(Term):
    """The loss of a reading head, of all views of a batch."""

    head: ReadingHead

    def __call__(self, batch: Batch) -> Tensor:
        """Return the mean over the tokens that are asked for."""
        read: Tensor = self.head(batch.encoded["sentence_embedding"], batch.features)
        return read


def _encoder(model: SentenceTransformer) -> tuple[Any, Any]:
    """Return a model's encoder and how it runs; raises UserError where it cannot be copied, or read
    an embedding.
    """
    encoder: Any = model[0].model if type(model[0]) is Transformer else None
    config: Any = getattr(encoder, "config", None)
    found = getattr(config, "model_type", type(model[0]).__name__)
    if found not in LAYERS:
        raise UserError(
            f"A reading head copies one encoder of the types {', '.join(LAYERS)}, found {found}; "
            "choose another loss."
        )
    if model.tokenizer.mask_token_id is None or model.tokenizer.padding_side != "right":
        raise UserError(
            "A reading head needs a tokenizer with a mask token that pads on the right, found "
            "none; choose another loss."
        )
    if (size := whole_dimension(model)) != config.hidden_size:
        raise UserError(
            "A reading head takes embeddings as wide as the encoder's states, "
            f"{config.hidden_size}, found {size}; choose another loss."
        )
    return LAYERS[found], encoder


def _generator(name: str, tokenizer: Any) -> Any:
    """Load a masked language model; raises UserError where it has no head, or other words."""
    with loading.reading(name) as place:
        words = AutoTokenizer.from_pretrained(place).get_vocab()
        model, report = AutoModelForMaskedLM.from_pretrained(place, output_loading_info=True)
    if report["missing_keys"]:
        raise UserError(
            f"generator: expected a masked language model, found {name!r}, which has no such head."
        )
    if words != tokenizer.get_vocab():
        raise UserError(
            f"generator: expected the vocabulary of the model itself, found another in {name!r}."
        )
    return model.eval().requires_grad_(False)
