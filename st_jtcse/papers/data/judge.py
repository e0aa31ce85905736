"""A language model that says how similar two sentences are, and the pairs of a corpus that are
worth asking about.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import semantic_search
from transformers import BatchEncoding, GenerationConfig

from st_jtcse.data.nearest import EXACT, index_of, needs_index
from st_jtcse.data.shards import Computation, cached_columns
from st_jtcse.data.teachers import check_embeddings
from st_jtcse.errors import UserError
from st_jtcse.hashing import weights_sha256
from st_jtcse.papers.data.frozen_generator import FrozenGenerator, settings_text

PROMPT = (
    "On a scale from 0 to 1, how similar in meaning are these two sentences? Answer with a number "
    "only.\nSentence 1: {sentence1}\nSentence 2: {sentence2}\nSimilarity:"
)
_FIELDS = ("{sentence1}", "{sentence2}")
_MARKS = r"[*_\"'`\u201c\u201d\u2018\u2019]*"
# A number in the middle of an answer may be anything: "Sentence 1 and Sentence 2 differ: 0.1" would
# be 1.
_ANSWER = re.compile(
    rf"\s*{_MARKS}(?:(?:similarity(?:\s+score)?|score|answer)\s*{_MARKS}:{_MARKS}\s*)?{_MARKS}"
    # "1. Both are" numbers a list.
    r"(?P<number>[0-9]*\.[0-9]+|[0-9]+(?!\.\s+\S))"
    rf"{_MARKS}[.,;:!?]?{_MARKS}(?=\s|$)"
    # "1 out of 5", "0.2 - 0.4" and "0, 8" are other numbers.
    r"(?!\s*(?:[/%]|\(?(?:out\s+)?of\b|percent\b|(?:[-\u2013\u2014]|to\b|or\b)\s*[0-9.])|(?<=[.,])[^\S\n]*[0-9])",
    re.IGNORECASE,
)


class Judge(FrozenGenerator):
    """Asks a causal language model, by greedy search, for an answer of at most `max_new_tokens`.

    The prompt, with ``{sentence1}`` and ``{sentence2}``, is the user's message where the tokenizer
    has a chat template.
    """

    def __init__(
        self,
        name: str,
        prompt: str = PROMPT,
        *,
        max_new_tokens: int = 8,
        batch_size: int = 16,
        bf16: bool = False,
    ) -> None:
        if missing := [field for field in _FIELDS if field not in prompt]:
            raise UserError(f"The prompt lacks {missing[0]}; write the sentence's place into it.")
        # Answers follow the prompt, so padding comes before it.
        super().__init__(
            name, translates=False, batch_size=batch_size, bf16=bf16, padding_side="left"
        )
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self.prompt = prompt
        self.max_new_tokens = max_new_tokens
        eos = self.model.generation_config.eos_token_id
        self.model.generation_config = GenerationConfig(
            do_sample=False,
            max_new_tokens=max_new_tokens,
            eos_token_id=eos,
            pad_token_id=self.tokenizer.pad_token_id,
        )

    def settings(self) -> dict[str, Any]:
        """Return what decides an answer beside the sentences."""
        return {
            "weights": weights_sha256(self.model),
            "config": settings_text(self.model.config.to_dict()),
            "vocabulary": hashlib.sha256(
                json.dumps(self.tokenizer.get_vocab(), sort_keys=True).encode()
            ).hexdigest(),
            "chat_template": self.tokenizer.chat_template,
            "prompt": self.prompt,
            "max_new_tokens": self.max_new_tokens,
            "batch_size": self.batch_size,
        }

    @torch.inference_mode()
    def answers(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Return the model's answer to each pair of sentences, as written."""
        prompts = [self._prompt(*pair) for pair in pairs]

        def write(rows: list[int]) -> list[str]:
            inputs = self._tokens([prompts[row] for row in rows])
            ids = inputs["input_ids"].to(self.model.device)
            mask = inputs["attention_mask"].to(self.model.device)
            written = self.model.generate(input_ids=ids, attention_mask=mask)[:, ids.shape[1] :]
            answers = self.tokenizer.batch_decode(written, skip_special_tokens=True)
            return [answer.strip() for answer in answers]

        return self.longest_first([len(prompt) for prompt in prompts], write)

    def _tokens(self, prompts: Sequence[str]) -> BatchEncoding:
        # A chat template writes the start token itself; with a second one, the model meets what it
        # never was taught.
        special = self.tokenizer.chat_template is None
        return self.tokenizer(
            list(prompts), padding=True, add_special_tokens=special, return_tensors="pt"
        )

    def _prompt(self, first: str, second: str) -> str:
        # Not str.format: a sentence or a prompt may hold braces of its own.
        parts = re.split(r"(\{sentence[12]\})", self.prompt)
        text = "".join({_FIELDS[0]: first, _FIELDS[1]: second}.get(part, part) for part in parts)
        if self.tokenizer.chat_template is None:
            return text
        message = [{"role": "user", "content": text}]
        return str(
            self.tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        )


def neighbour_pairs(
    sentences: Sequence[str], scorer: SentenceTransformer, count: int, exact: int = EXACT
) -> list[tuple[str, str]]:
    """Pair each different sentence with its `count` nearest others by the scorer's cosine, which
    are worth judging.

    Each pair comes once, in the order of the sentences. Of more than `exact` different sentences
    the nearest are found by faiss, which may miss a few. UserError where an embedding is not finite
    or zero, or faiss is not installed.
    """
    unique = list(dict.fromkeys(sentences))
    indexed = needs_index(len(unique), exact)
    embeddings = scorer.encode(
        unique, convert_to_tensor=True, normalize_embeddings=True, show_progress_bar=False
    )
    vectors = embeddings.float().cpu().numpy()
    check_embeddings(vectors, unique, "scorer", sentences, for_cosines=True)
    nearest: Iterable[list[int]]
    if indexed:
        nearest = index_of(vectors).search(vectors, count + 1)[1].tolist()
    else:
        nearest = _nearest(embeddings, count + 1)
    pairs: set[tuple[int, int]] = set()
    for row, near in enumerate(nearest):
        others = [other for other in near if other not in (row, -1)][:count]
        pairs.update((min(row, other), max(row, other)) for other in others)
    return [(unique[first], unique[second]) for first, second in sorted(pairs)]


def _nearest(embeddings: torch.Tensor, count: int) -> Iterator[list[int]]:
    """Yield the places of each embedding's nearest ones, by comparing each with every other."""
    for hits in semantic_search(embeddings, embeddings, top_k=count):
        yield [int(hit["corpus_id"]) for hit in hits]


def judged_scores(
    pairs: Sequence[tuple[str, str]], judge: Judge, cache_dir: Path, shard_size: int = 1000
) -> list[float | None]:
    """Return the score of each pair, as :func:`score_of` reads it; an interrupted run goes on after
    its answers.

    Answers are kept for the list of pairs as a whole: one pair more or less, and all are asked
    again.
    """
    rows = [json.dumps(pair, ensure_ascii=False) for pair in pairs]

    def compute(some: list[str]) -> pa.Table:
        answers = judge.answers([tuple(json.loads(row)) for row in some])
        return pa.table({"answer": pa.array(answers, pa.string())})

    settings = {"pairs": hashlib.sha256("\n".join(rows).encode()).hexdigest(), **judge.settings()}
    dataset = Dataset.from_dict({"sentence": rows})
    job = Computation("judge", settings, dataset, compute, shard_size)
    return [score_of(answer) for answer in cached_columns(job, cache_dir)["answer"]]


def score_of(answer: str) -> float | None:
    """Read the number from 0 to 1 that an answer begins with, None if it begins with none.

    A label before it ("Similarity:", "Score:", "Answer:"), quotes and Markdown's asterisks are
    passed over. The number stands alone: what could be a part of a whole, a range or another way of
    writing is none.
    """
    found = _ANSWER.match(answer)
    if found and float(found["number"]) <= 1:
        return float(found["number"])
    return None
