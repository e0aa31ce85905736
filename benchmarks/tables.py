"""Tables of benchmarks/README.md and docs/adapt.md and pictures of docs/pictures, made of
benchmarks/results/*.json.

Run: python benchmarks/tables.py
A table stands between `<!-- NAME -->` and `<!-- end of NAME -->`, where NAME is that of its
results. It is never edited by hand: measure again, and run this.
"""

import json
import re
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"
PICTURES = DOCS / "pictures"
Results = dict[str, Any]


def ran(found: Results, also: str) -> str:
    """The line above a table: what was measured on what."""
    threads = f"{found['threads']} thread{'s' if found['threads'] > 1 else ''}"
    return f"{found['machine']}, {threads}, torch {found['torch']}, {also}:"


def ratio(quartiles: list[float]) -> str:
    """A median ratio with the middle half."""
    low, middle, high = quartiles
    return "1.00" if low == middle == high == 1 else f"{middle:.2f} ({low:.2f} to {high:.2f})"


def table(heads: str, rows: Iterable[Iterable[Any]]) -> list[str]:
    """The lines of a table."""
    written = [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return ["", f"| {heads} |", f"|{'---|' * len(heads.split(' | '))}", *written]


def steps(found: Results) -> list[str]:
    """Seconds and ratios of training steps."""
    rows = [
        (row["step"], row["seconds"], ratio(row["to_mnrl"]), ratio(row["to_simcse"]))
        for row in found["rows"]
    ]
    heads = "step | seconds | to MultipleNegativesRankingLoss | to SimCSELoss"
    told = f"{found['pooling']} pooling, batch {found['batch']}, {found['steps']} steps in turns"
    return [ran(found, told), *table(heads, rows)]


def memory(found: Results) -> list[str]:
    """Peaks of steps, and the time of mini-batches."""
    first = found["memory"][0]
    rows = [
        (
            row["loss"],
            f"{row['batch']:,}, {'in mini-batches' if row['way'] == 'cached' else row['way']}",
            f"{row['peak_mib']:.0f}",
            f"{row['peak_mib'] / first['peak_mib']:.2f}",
            f"{row['rise_mib']:.0f}",
            f"{row['rise_mib'] / first['rise_mib']:.2f}",
        )
        for row in found["memory"]
    ]
    told = f"{found['backbone']} backbone, mini-batches of {found['mini_batch']} rows"
    lines = [
        ran(found, told),
        *table("loss | batch | peak, MiB | ratio | raised by the step, MiB | ratio", rows),
    ]
    if time := found.get("time"):
        lines += [
            "",
            f"A step at {time['batch']} in mini-batches takes {ratio(time['ratio'])} times one "
            "pass.",
        ]
    return lines


def growth(found: Results) -> list[str]:
    """Time a sentence by batch."""
    rows = [
        (row["loss"], f"{row['batch']:,}", row["ms_a_sentence"], ratio(row["growth"]))
        for row in found["rows"]
    ]
    told = f"mini-batches of {found['mini_batch']} rows, {found['rounds']} rounds"
    alt = (
        "Milliseconds a sentence over batches; time of a process over processes; memory over "
        "lines of text"
    )
    lines = [ran(found, told), *table("loss | batch | ms a sentence | to the first batch", rows)]
    return [*lines, "", f"![{alt}](../docs/pictures/growth.svg)"]


def processes(found: Results) -> list[str]:
    """Time of a step in one process and in two."""
    rows = [
        (
            row["way"],
            row["processes"],
            row["batch_of_all"],
            row["seconds_a_process"],
            ratio(row["ratio"]),
        )
        for row in found["rows"]
    ]
    heads = "encoded | processes | batch of all | seconds of each process | to one process"
    return [ran(found, f"{found['steps']} steps in turns"), *table(heads, rows)]


def vectors(found: Results) -> list[str]:
    """Time of teachers' vectors in one process and in each of two."""
    alone = found["rows"][0]
    rows = [
        (
            row["processes"],
            row["rank"],
            row["seconds"],
            row["encoding"],
            f"{row['seconds'] / alone['seconds']:.2f}",
            f"{row['encoding'] / alone['encoding']:.2f}",
        )
        for row in found["rows"]
    ]
    heads = "processes | rank | processor seconds | of them encoding | to one process | encoding"
    told = "The caches hold the same bytes." if found["same_bytes"] else "The caches differ."
    return [ran(found, f"{found['texts']:,} texts"), *table(heads, rows), "", told]


def towers(found: Results) -> list[str]:
    """Ways of running two towers."""
    rows = [
        (row["pass"], row["batch"], row["way"], row["ms"], ratio(row["ratio"]))
        for row in found["rows"]
    ]
    told = f"sentences of {found['tokens']} tokens, {found['rounds']} rounds"
    return [ran(found, told), *table("pass | batch | way | ms | to two calls", rows)]


def lines_of_text(found: Results) -> list[str]:
    """Memory and time of a run by the lines of its text, the first time and again."""
    keys = list(found["runs"][0]["first"])
    rows = [
        (f"{row['lines']:,}", *(row[run][key] for run in ("first", "again") for key in keys))
        for row in found["runs"]
    ]
    heads = ["lines", *(f"{key}, {run} run" for run in ("first", "next") for key in keys)]
    lines = [ran(found, f"{found['steps']} steps of {found['batch']}")]
    lines += table(" | ".join(heads).replace("_", " "), rows)
    least, most = found["runs"][0], found["runs"][-1]
    more = f"{most['again']['peak_mib'] - least['again']['peak_mib']:.0f} MiB"
    return [
        *lines,
        "",
        f"{most['lines']:,} lines take {more} more than {least['lines']:,} in the next run.",
    ]


def sizes(found: Results) -> list[str]:
    """What was foretold of runs, and what they took."""
    columns = (("seconds", 1.0, "seconds"), ("bytes", 1e6, "MB on disk"), ("memory", 1e6, "MB"))
    rows = []
    for row in found["rows"]:
        cells = [f"{row['texts']:,}"]
        for key, unit, _ in columns:
            told, taken = row["foretold"][key], row["taken"][key]
            cells += [f"{told / unit:.1f}", f"{taken / unit:.1f}", f"{told / taken:.2f}"]
        rows.append(cells)
    heads = [f"{name}, foretold | taken | ratio" for _, _, name in columns]
    told = f"batches of {found['batch']}, rehearsed on {found['rows'][0]['texts']} texts"
    lines = [ran(found, told), *table(" | ".join(["texts", *heads]), rows)]
    return [*lines, "", _grown(found["rows"])]


def _grown(rows: list[Results]) -> str:
    least, most = rows[0], rows[-1]

    def more(key: str) -> str:
        told, taken = (most[who][key] - least[who][key] for who in ("foretold", "taken"))
        return f"{told / taken:.2f}"

    return (
        f"From {least['texts']:,} to {most['texts']:,} texts, what was foretold grows "
        f"{more('seconds')} times as much as what was taken in seconds, {more('bytes')} times in "
        f"bytes on disk and {more('memory')} times in memory."
    )


def accelerator(found: Results) -> list[str]:
    """Training steps on an accelerator."""
    rows = [
        (
            f"{row['shape']}, {row['loss']}",
            row["batch"],
            f"{row['sentences_per_second']:,.0f}",
            f"{row['peak_share']:.0%}",
            f"{row['padding']:.0%}",
            f"{row['epoch_seconds'] / 60:.1f}",
            row["limited_by"],
        )
        for row in found["rows"]
    ]
    heads = (
        "BERT | batch | sentences/s | share of the bf16 peak | padding | minutes of 1,000,000 "
        "sentences | limited by"
    )
    return [ran(found, f"mean {found['rows'][0]['mean_tokens']} tokens"), *table(heads, rows)]


def same_time(found: Results) -> list[str]:
    """Scores of ways without labels by text, mean and deviation over seeds."""
    cells = found["cells"]
    texts, rows = list(dict.fromkeys(cell["text"] for cell in cells)), []
    for way in dict.fromkeys(cell["way"] for cell in cells):
        own = [
            [cell["mean"] for cell in cells if (cell["way"], cell["text"]) == (way, text)]
            for text in texts
        ]
        rows.append((way, *map(spread, own)))
    return table(" | ".join(["", *texts]), rows)


def choice(found: Results) -> list[str]:
    """What the measure without labels chooses by text."""
    rows = [
        (row["text"], row["models"], row["correlation"], row["chosen"], row["loss"])
        for row in found["texts"]
    ]
    return table(
        "text | models | rank correlation | chosen | points lost to the best by labels", rows
    )


def spread(values: list[float]) -> str:
    """Mean and deviation of several values, one as it is."""
    if len(values) < 2:
        return ", ".join(f"{value:.1f}" for value in values)
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


MAKERS: dict[str, Callable[[Results], list[str]]] = {
    "train_step": steps,
    "big_batches_SimCSELoss": memory,
    "big_batches_SimCSELoss_embedded": memory,
    "growth": growth,
    "two_processes": processes,
    "shared_vectors": vectors,
    "both_towers_cpu": towers,
    "both_towers_cuda": towers,
    "corpus_size": lines_of_text,
    "sizes": sizes,
    "gpu": accelerator,
    "same_time": same_time,
    "choice": choice,
}
# The results that stand on a page; the others stand on the benchmarks' own.
ELSEWHERE = {DOCS / "adapt.md": ["same_time", "choice"]}
OWN = [name for name in MAKERS if not any(name in names for names in ELSEWHERE.values())]
PAGES = {Path(__file__).parent / "README.md": OWN, **ELSEWHERE}


def results(folder: Path = RESULTS) -> dict[str, Results]:
    """The results of these tables by name; those of views stand in docs/views.md."""
    files = [path for path in sorted(folder.glob("*.json")) if path.stem in MAKERS]
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}


def filled(page: str, found: dict[str, Results]) -> str:
    """A page with the tables of results between its marks."""
    seen = set()

    def between(marks: re.Match[str]) -> str:
        seen.add(name := marks[1])
        lines = MAKERS[name](found[name]) if name in found else ["Not measured yet."]
        return "\n".join([f"<!-- {name} -->", *lines, "", f"<!-- end of {name} -->"])

    page = re.sub(r"<!-- (\w+) -->.*?<!-- end of \1 -->", between, page, flags=re.DOTALL)
    if missing := found.keys() - seen:
        raise SystemExit(
            f"tables.py: expected the marks of {', '.join(sorted(missing))}, found none."
        )
    return page


def draw(found: dict[str, Results], folder: Path = PICTURES) -> None:
    """Draw the growth curves, one panel each of what was measured."""
    from st_jtcse.reports.drawing import house_style, panels, series, to_bytes

    given = [name for name in CURVES if name in found]
    if not given:
        return
    with house_style():
        figure, every = panels(len(given), 4.5 * max(2, len(given)), least=4, height=3.8)
        looks = series()
        for name, axes in zip(given, every):
            CURVES[name](axes, found[name], looks)
            axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18))
        (folder / "growth.svg").write_bytes(to_bytes(figure, "svg"))


def by_batch(axes: Any, found: Results, looks: Iterator[dict[str, Any]]) -> None:
    """Draw the time a sentence over batches."""
    rows = found["rows"]
    for loss in dict.fromkeys(row["loss"] for row in rows):
        own = [row for row in rows if row["loss"] == loss]
        axes.plot(
            [row["batch"] for row in own],
            [row["ms_a_sentence"] for row in own],
            label=loss,
            **next(looks),
        )
    axes.set_xscale("log", base=2)
    batches = sorted({row["batch"] for row in rows})
    axes.set_xticks(batches, [f"{batch:,}" for batch in batches])
    axes.set(xlabel="batch", ylabel="ms a sentence")


def by_processes(axes: Any, found: Results, looks: Iterator[dict[str, Any]]) -> None:
    """Draw the time of a process over processes."""
    rows = found["rows"]
    for way in dict.fromkeys(row["way"] for row in rows):
        ratios = {row["processes"]: row["ratio"][1] for row in rows if row["way"] == way}
        axes.plot(*zip(*ratios.items()), label=f"SimCSELoss, {way}, gathered", **next(looks))
    axes.set(xlabel="processes, each with a batch of its own", ylabel="time of a process, to one")
    axes.set_xticks([1, 2])


def by_lines(axes: Any, found: Results, looks: Iterator[dict[str, Any]]) -> None:
    """Draw the peak memory of a run over the lines of its text."""
    for run, name in (("first", "first run, which converts a large text"), ("again", "next run")):
        peaks = {row["lines"]: row[run]["peak_mib"] for row in found["runs"]}
        axes.plot(*zip(*peaks.items()), label=name, **next(looks))
    axes.set_xscale("log")
    lines = [row["lines"] for row in found["runs"]]
    axes.set_xticks(lines, [f"{each:,}" for each in lines])
    axes.minorticks_off()
    axes.set(xlabel="lines of text", ylabel="peak memory, MiB")


CURVES = {"growth": by_batch, "two_processes": by_processes, "corpus_size": by_lines}


def main() -> None:
    """Write the tables and the pictures."""
    found = results()
    for page, names in PAGES.items():
        own = {name: found[name] for name in names if name in found}
        page.write_text(filled(page.read_text(encoding="utf-8"), own), encoding="utf-8")
    draw(found)


if __name__ == "__main__":
    main()
