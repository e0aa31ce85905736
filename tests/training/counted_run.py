"""A run in one of two processes, and how many texts each encodes."""

import os
from pathlib import Path

from sentence_transformers import SentenceTransformer

from st_jtcse.cli.train import main


def train_counted(folder):
    """Run the recipe in one of two processes, counting the texts that this one encodes."""
    os.chdir(folder)
    encoded, forward = [], SentenceTransformer.forward

    def counted(model, features, **options):
        encoded.append(len(features["input_ids"]))
        return forward(model, features, **options)

    SentenceTransformer.forward = counted
    status = main(["recipe.yaml"])
    Path(f"encoded-{os.environ['RANK']}").write_text(str(sum(encoded)))
    return status
