"""A second encoder that reads each sentence from its embedding, in training only."""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForMaskedLM, AutoTokenizer, DataCollatorForLanguageModeling

from st_jtcse import processes
from st_jtcse.errors import UserError
from st_jtcse.losses.views import BIASES, whole_dimension
from st_jtcse.modules import loading
from st_jtcse.towers.modeling_tower_layers import LAYERS

Reading = Literal["replaced_tokens", "masked_tokens"]

# Of the masked tokens' reader: the layers behind the embedding's place.
_HEAD_LAYERS = 2


class ReadingHead(nn.Module):
    r"""A copy of the encoder, g, in which the sentence's embedding h takes the place of the first
    token's state.

    ``replaced_tokens`` (DiffCSE): some of the words w are replaced, w', and the copy tells which, y
    = 1, from the rest:

    .. math:: L = -\frac{1}{|w|} \sum_t \log \sigma((2 y_t - 1) u^\top g(h, w')_t)

    ``masked_tokens`` (InfoCSE): some of them, m, are masked as BERT's are. The lower half of the
    copy's layers reads w' and is not trained, h comes in behind it, and the last two layers and the
    word embeddings E fill in the words:

    .. math:: L = -\frac{1}{|m|} \sum_{t \in m} \log softmax(E U g(h, w')_t)_{w_t}

    Gradients flow into the copy and, by h alone, into the model. The copy is part of the loss's
    state, so that it is saved with it; all processes have the same.

    Args:
        model: The model that is trained.
        reading: What is read.
        mask_share: Share of the words that are replaced or masked.
        generator: Name or folder of a masked language model, which is not trained: its likeliest
            words replace others. None: words of the batch do, drawn at random.

    Raises:
        UserError: The model or the generator does not go with it.

    References:
        Chuang et al., DiffCSE, NAACL 2022, Sec. 3; Wu et al., InfoCSE, Findings of EMNLP 2022,
        auxiliary network.
    """

    def __init__(
        self, model: SentenceTransformer, reading: Reading, mask_share: float, generator: str | None
    ) -> None:
        super().__init__()
        self._kind, encoder = _encoder(model)
        self._masking = DataCollatorForLanguageModeling(model.tokenizer, mlm_probability=mask_share)
        # In a list: what is not trained is no part of the state.
        self._generator = [_generator(generator, model.tokenizer)] if generator else []
        self.copied = copy.deepcopy(encoder).train()
        self._fills_in = reading == "masked_tokens"
        layers = next(part for part in self.copied.modules() if isinstance(part, nn.ModuleList))
        self._place = len(layers) // 2 if self._fills_in else 0
        if self._fills_in:
            del layers[self._place : -_HEAD_LAYERS]
            self.copied.requires_grad_(False)
            layers[self._place :].requires_grad_(True)
        size, table = encoder.config.hidden_size, self.copied.get_input_embeddings()
        self.output = nn.Linear(size, table.embedding_dim if self._fills_in else 1, bias=False)
        # The same in every process, whatever was drawn before.
        nn.init.normal_(
            self.output.weight, std=size**-0.5, generator=torch.Generator().manual_seed(0)
        )
        for weight in self.parameters():
            if weight.requires_grad:
                weight.register_hook(processes.mean)

    def forward(self, embeddings: Tensor, features: dict[str, Any]) -> Tensor:
        """Return the loss of reading a batch of tokens, (B, T), from k views' embeddings of it,
        (kB, H).

        Raises UserError if there are no rows of tokens, or the embeddings are not whole.
        """
        if (
            "attention_mask" not in features
            or BIASES in features
            or embeddings.shape[1] != self.output.in_features
        ):
            raise UserError(
                "reading takes rows of tokens and whole embeddings; leave it out, or flash "
                "attention, templates and "
                "MatryoshkaLoss."
            )
        times = len(embeddings) // len(features["input_ids"])
        ids, mask = (features[key].repeat(times, 1) for key in ("input_ids", "attention_mask"))
        special = torch.tensor(self._masking.tokenizer.all_special_ids, device=ids.device)
        words = mask.bool() & ~torch.isin(ids, special)
        edited, chosen = self._edited(ids, mask, words)
        read = self._read(embeddings, edited, mask)
        if self._fills_in:
            scores = read[chosen] @ self.copied.get_input_embeddings().weight.T
            total = F.cross_entropy(scores, ids[chosen], reduction="sum")
            return total / chosen.sum().clamp_min(1)
        scores, replaced = read[words].squeeze(-1), (edited != ids)[words]
        total = F.binary_cross_entropy_with_logits(scores, replaced.to(scores), reduction="sum")
        return total / words.sum().clamp_min(1)

    def _edited(self, ids: Tensor, mask: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens some of which are masked or replaced, and which were chosen for it, (kB, T)
        each.
        """
        masked, labels = self._masking.torch_mask_tokens(
            ids.cpu().clone(), special_tokens_mask=~words.cpu()
        )
        masked, chosen = masked.to(ids.device), labels.to(ids.device) >= 0
        if self._fills_in:
            return masked, chosen
        if self._generator:
            with torch.no_grad():
                scores = (
                    self._generator[0].to(ids.device)(input_ids=masked, attention_mask=mask).logits
                )
            return torch.where(chosen, scores.argmax(dim=-1), ids), chosen
        own = ids[words]
        drawn = torch.randint(max(len(own), 1), (int(chosen.sum()),)).to(ids.device)
        return ids.masked_scatter(chosen, own[drawn]), chosen

    def _read(self, embeddings: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        """Return what is said of each token, (kB, T, any)."""
        way = self._kind(self.copied, input_ids=ids, attention_mask=mask)
        hidden = way.start
        for number, layer in enumerate(way.layers):
            if number == self._place:
                hidden = torch.cat([embeddings.unsqueeze(1), hidden[:, 1:]], dim=1)
            hidden = way.run(layer, hidden)
        said: Tensor = self.output(way.end(hidden))
        return said


def _encoder(model: SentenceTransformer) -> tuple[Any, Any]:
    """Return a model's encoder and how it runs; raises UserError where it cannot be copied, or read
    an embedding.
    """
    encoder: Any = model[0].model if type(model[0]) is Transformer else None
    config: Any = getattr(encoder, "config", None)
    found = getattr(config, "model_type", type(model[0]).__name__)
    if found not in LAYERS:
        raise UserError(
            f"reading copies one encoder of the types {', '.join(LAYERS)}, found {found}; leave it "
            "out."
        )
    if model.tokenizer.mask_token_id is None or model.tokenizer.padding_side != "right":
        raise UserError(
            "reading needs a tokenizer with a mask token that pads on the right, found none; leave "
            "it out."
        )
    if (size := whole_dimension(model)) != config.hidden_size:
        wanted = f"reading takes embeddings as wide as the encoder's states, {config.hidden_size}"
        raise UserError(f"{wanted}, found {size}; leave it out.")
    return LAYERS[found], encoder


def _generator(name: str, tokenizer: Any) -> Any:
    """Load a masked language model; raises UserError if it is none, or of other words."""
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
