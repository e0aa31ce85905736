"""Peak memory of encoding teacher vectors, for few sentences and for many.

Run: python benchmarks/teacher_memory.py [--few N] [--many N]
Each size runs in its own process: a tiny random BERT with a projection to 768 components encodes
generated sentences into the sharded cache, and the process reports its peak resident memory.
"""

import argparse
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModel, BertConfig, PreTrainedTokenizerFast

from st_jtcse.data.teachers import with_teacher_labels

WORDS = [f"w{index}" for index in range(1000)]


def teacher(folder: Path) -> SentenceTransformer:
    """A one-layer BERT whose embeddings have 768 components."""
    torch.manual_seed(0)
    vocabulary = {word: index for index, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
    )
    AutoModel.from_config(config).save_pretrained(folder)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=32
    )
    fast.save_pretrained(folder)
    return SentenceTransformer(
        modules=[Transformer(str(folder)), Pooling(32, "cls"), Dense(32, 768)], device="cpu"
    )


def encode(count: int) -> None:
    """Encode that many sentences, and print the process's peak resident memory in MiB."""
    draw = random.Random(0)
    sentences = Dataset.from_dict(
        {"sentence": [" ".join(draw.choices(WORDS, k=8)) for _ in range(count)]}
    )
    with tempfile.TemporaryDirectory() as folder:
        labelled = with_teacher_labels(
            sentences, str(count), [teacher(Path(folder))], [1.0], Path(folder, "cache")
        )
        assert len(labelled) == count
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    """Measure both sizes and print the difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=200_000)
    parser.add_argument("--encode", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.encode:
        encode(options.encode)
        return
    peaks = {}
    for count in (options.few, options.many):
        command = [sys.executable, __file__, "--encode", str(count)]
        peaks[count] = float(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]
        )
        print(f"{count:>9} sentences: {peaks[count]:.0f} MiB")
    print(
        f"more for {options.many // options.few} times as many: "
        f"{peaks[options.many] - peaks[options.few]:.0f} MiB"
    )


if __name__ == "__main__":
    main()
