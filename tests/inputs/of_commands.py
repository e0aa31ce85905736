"""Options of the seven commands."""

from inputs.row import Row

DIAGNOSE = "st-diagnose {model} --pairs {pairs} --output-dir out"
SCORE = "st-score {corpus} --scorer {model} --judge {judge} --output out.jsonl"
EVAL = "st-eval {model} --task senteval/CR --output-dir out"
OWN = "st-eval {model}"
JOIN = "st-convert join {first} {second} out"

ROWS = [
    Row("an unknown option", "st-train {recipe} --stages one", "unrecognized arguments: --stages"),
    Row(
        "an option without its value",
        "st-train {recipe} --set",
        "argument --set: expected one argument",
    ),
    Row(
        "a copy of no recipe",
        "st-train --copy quickstrat my.yaml",
        "--copy: expected the name of a bundled recipe",
    ),
    Row(
        "a copy onto a file",
        "st-train --copy quickstart my.yaml",
        "--copy: my.yaml exists already; choose another file.",
        files={"my.yaml": "mine\n"},
    ),
    Row("no model to evaluate", "st-eval", "Give a model: a folder, a Hub id, or embedded."),
    Row(
        "nothing to evaluate",
        "st-eval {model}",
        "Nothing to evaluate: give --suite, --task or --data FILE",
    ),
    Row("an unknown suite", "st-eval {model} --suite sts8", "--suite: "),
    Row("an unknown task", "st-eval {model} --task senteval/CRX", "--task: "),
    Row("a task without a name", "st-eval {model} --task ''", "--task: "),
    Row("data that are not there", f"{EVAL} --data none", "none does not exist; check the path."),
    *(
        Row(
            f"the device {name!r}",
            f"{EVAL} --device '{name}'",
            f"--device: {name!r} cannot be used here ({reason}",
        )
        for name, reason in {
            "meta": "",
            "nonsense": "Expected one of cpu, cuda",
            "": "Device string must not be empty",
            "cpu:-1": "Invalid device string",
        }.items()
    ),
    Row(
        "a set of other columns",
        f"{OWN} --data s.jsonl",
        "expected the columns of a set",
        files={"s.jsonl": "{}\n"},
    ),
    Row(
        "columns that are called otherwise",
        f"{OWN} --data s.csv --columns query=asked,relevant=answer",
        "s.csv:2: expected the column 'asked', as 'columns' calls 'query', found question, answer",
        files={"s.csv": "question,answer\na,b\n"},
    ),
    Row(
        "columns without what they are called",
        f"{OWN} --data s.csv --columns question,answer",
        "expected NAME=YOURS,NAME=YOURS, found 'question,answer'",
        files={"s.csv": "question,answer\na,b\n"},
    ),
    Row("a set without a row", f"{OWN} --data s.jsonl", "s.jsonl is empty", files={"s.jsonl": ""}),
    Row(
        "labels that tell nothing apart",
        f"{OWN} --data s.csv",
        "s.csv: 1 labels in 2 rows have nothing to tell apart;",
        files={"s.csv": "text,label\na,x\nb,x\n"},
    ),
    Row("two models of one name", f"{OWN} {{model}} --data {{pairs}}", "Several models are called"),
    Row(
        "a card of two models",
        f"{OWN} {{first}} --data {{pairs}} --card",
        "--card is for one model",
    ),
    Row(
        "a card and another folder",
        f"{EVAL} --card",
        "--card keeps the results in the model's folder",
    ),
    Row(
        "a card of another pooling",
        "st-eval {model} --task senteval/CR --card --pooling mean",
        "leave out --pooling",
    ),
    Row(
        "a card of no folder",
        "st-eval me/none --task senteval/CR --card",
        "--card: me/none is not a folder",
    ),
    Row(
        "a batch of nothing",
        f"{EVAL} --batch-size 0",
        "--batch-size: expected a positive number, found '0'",
    ),
    Row(
        "a batch that is a word",
        f"{EVAL} --batch-size all",
        "--batch-size: expected a positive number, found 'all'",
    ),
    Row(
        "an unknown pooling to evaluate",
        f"{EVAL} --pooling men",
        "argument --pooling: invalid choice: 'men'",
    ),
    Row(
        "no pairs to diagnose by",
        "st-diagnose {model} --output-dir out",
        "arguments are required: --pairs",
    ),
    Row(
        "pairs that are not there",
        DIAGNOSE.replace("{pairs}", "none.jsonl"),
        "--pairs: none.jsonl is not a file",
    ),
    Row(
        "a range the wrong way round",
        f"{DIAGNOSE} --score-range 5 0",
        "--score-range: expected a lower and a higher",
    ),
    Row(
        "a range that is NaN",
        f"{DIAGNOSE} --score-range nan 5",
        "--score-range: expected a lower and a higher",
    ),
    Row("a range too narrow", f"{DIAGNOSE} --score-range 0 0.5", "is outside 0 to 0.5"),
    Row(
        "a sentence of blanks",
        f"{DIAGNOSE} --sentence ' '",
        "--sentence: expected a sentence, found nothing",
    ),
    Row(
        "one model twice",
        DIAGNOSE.replace("{model}", "{model} {model}"),
        "is given twice; give each once.",
    ),
    Row(
        "a seed that is a word",
        f"{DIAGNOSE} --seed lucky",
        "argument --seed: invalid int value: 'lucky'",
    ),
    Row(
        "no sample",
        f"{DIAGNOSE} --sample-size 0",
        "--sample-size: expected a positive number, found '0'",
    ),
    Row("an unknown map", f"{DIAGNOSE} --map umap", "argument --map: invalid choice: 'umap'"),
    Row("nothing to convert", "st-convert", "the following arguments are required: COMMAND"),
    Row("an unknown conversion", "st-convert merge a b c", "invalid choice: 'merge'"),
    Row(
        "one encoder to join",
        "st-convert join {first} out",
        "the following arguments are required: OUTPUT",
    ),
    Row(
        "cross-attention after every 0th layer",
        f"{JOIN} --cross-attention-every 0",
        "expected a number of layers, or none",
    ),
    Row(
        "cross-attention beyond the layers",
        f"{JOIN} --cross-attention-every 9",
        "cross_attention_every",
    ),
    Row("an unknown residual", f"{JOIN} --cross-residual both", "invalid choice: 'both'"),
    Row("a length of 0", f"{JOIN} --max-seq-length 0", "expected a number of tokens, found '0'"),
    Row(
        "a score file that is there",
        SCORE,
        "--output: out.jsonl exists already",
        files={"out.jsonl": "{}\n"},
    ),
    Row(
        "no judge",
        "st-score {corpus} --scorer {model} --output o",
        "arguments are required: --judge",
    ),
    Row(
        "no neighbours",
        f"{SCORE} --neighbours 0",
        "--neighbours: expected a positive number, found '0'",
    ),
    Row(
        "a prompt that is not there",
        f"{SCORE} --prompt none.txt",
        "--prompt: none.txt cannot be read",
    ),
    Row(
        "a prompt without a sentence",
        f"{SCORE} --prompt p.txt",
        "The prompt lacks {sentence2}; write the sentence's place into it.",
        files={"p.txt": "Compare {sentence1}.\n"},
    ),
    Row(
        "a prompt that is no text",
        f"{SCORE} --prompt p.txt",
        "--prompt: p.txt cannot be read",
        files={"p.txt": b"\xff"},
    ),
    Row(
        "one sentence to score",
        SCORE.replace("{corpus}", "t.txt"),
        "t.txt holds one sentence, and pairs need two",
        files={"t.txt": "a dog\na dog\n"},
    ),
    Row(
        "a text to score that is not there",
        SCORE.replace("{corpus}", "none.txt"),
        "none.txt does not exist",
    ),
    Row("no repository", "st-push {model}", "the following arguments are required: REPO"),
    Row("a repository that no Hub takes", "st-push {model} 'me/a b' --dry-run", "me/a b"),
    Row("a repository of three parts", "st-push {model} a/b/c --dry-run", "a/b/c"),
    Row(
        "no run to compare",
        "st-convergence --output-dir out",
        "the following arguments are required: RUN",
    ),
    Row(
        "a score that is no number",
        "st-convergence {run} --score best --output-dir out",
        "invalid float value: 'best'",
    ),
    Row("a run twice", "st-convergence {run} {run} --output-dir out", "has seed 1, as in"),
]
