"""A twin and an ensemble as one ONNX graph, run by ONNX Runtime."""

import onnxruntime
import pytest
import torch
from conftest import make_encoder

from st_jtcse.modules.joining import ensemble_encoder_of, twin_of

# The sizes of the example that is traced, and others: one row, one token, the longest that fits.
TRACED, OTHERS = (2, 7), [(1, 1), (1, 5), (4, 1), (3, 12), (9, 32)]


def make_inputs(size, family):
    rows, tokens = size
    generator = torch.Generator().manual_seed(tokens)
    inputs = {"input_ids": torch.randint(5, 40, size, generator=generator)}
    # Row by row, one token more is padding.
    kept = (tokens - torch.arange(rows)).clamp_min(1)
    inputs["attention_mask"] = (torch.arange(tokens) < kept[:, None]).long()
    if family == "bert":
        inputs["token_type_ids"] = torch.zeros(size, dtype=torch.int64)
    return inputs


# A twin of BERT is the example of docs/formats.md, which tests/test_docs.py runs.
@pytest.mark.parametrize(("kind", "family"), [("twin", "roberta"), ("ensemble", "bert")])
def test_the_graph_equals_the_model_at_every_size(kind, family, tmp_path):
    # Tracing takes its time by the layer: a twin has one that crosses and one that does not.
    encoders = [
        make_encoder(seed, family, num_hidden_layers=2 if kind == "twin" else 1) for seed in (1, 2)
    ]
    if kind == "twin":
        model = twin_of(*encoders).eval()
    else:
        model = ensemble_encoder_of(encoders, [0.3, 0.7]).eval()
    inputs = make_inputs(TRACED, family)
    any_size = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    program = torch.onnx.export(
        model,
        kwargs=inputs,
        dynamo=True,
        dynamic_shapes=dict.fromkeys(inputs, any_size),
        output_names=["last_hidden_state"],
        verbose=False,
    )
    program.save(str(tmp_path / "model.onnx"))
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    for size in (TRACED, *OTHERS):
        inputs = make_inputs(size, family)
        with torch.no_grad():
            expected = model(**inputs).last_hidden_state
        (found,) = session.run(
            ["last_hidden_state"], {name: tensor.numpy() for name, tensor in inputs.items()}
        )
        assert expected.abs().max() > 0.1
        torch.testing.assert_close(
            torch.from_numpy(found), expected, atol=1e-5, rtol=0, msg=str(size)
        )
