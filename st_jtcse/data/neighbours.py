"""Pairs of a corpus that are worth judging."""

from __future__ import annotations

from collections.abc import Sequence

from sentence_transformers import SentenceTransformer
from sentence_transformers.util import semantic_search

from st_jtcse.data.teachers import check_embeddings


def neighbour_pairs(sentences: Sequence[str], scorer: SentenceTransformer, count: int) -> list[tuple[str, str]]:
    """Pair each sentence with its nearest others by cosine.

    Args:
        sentences: The corpus; repeated sentences count once.
        scorer: Whose cosines are meant.
        count: Neighbours of a sentence.

    Returns:
        Each pair once, in the order of the corpus.

    Raises:
        UserError: An embedding is not finite or zero.
    """
    unique = list(dict.fromkeys(sentences))
    embeddings = scorer.encode(unique, convert_to_tensor=True, normalize_embeddings=True, show_progress_bar=False)
    check_embeddings(embeddings.float().cpu().numpy(), unique, "scorer", sentences, for_cosines=True)
    pairs: dict[tuple[int, int], None] = {}
    for row, hits in enumerate(semantic_search(embeddings, embeddings, top_k=count + 1)):
        others = [int(hit["corpus_id"]) for hit in hits if hit["corpus_id"] != row][:count]
        pairs.update(dict.fromkeys((min(row, other), max(row, other)) for other in others))
    return [(unique[first], unique[second]) for first, second in sorted(pairs)]
