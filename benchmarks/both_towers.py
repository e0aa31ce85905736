"""Both towers of a twin in two calls and as one: mapped over stacked weights, in batched matrix
products, compiled.

Run: python benchmarks/both_towers.py [--batches 1 32 256] [--rounds 5] [--tokens 12] [--device
cuda] The layers of two towers of the embedded backbone's shape (6 layers of 384), all rows, no
padding, no dropout: one forward pass, and at a batch of 32 also forward and backward. The ways
agree within 1e-4 and take turns; times are processor time, on an accelerator the time until it is
done, and a ratio is the median over rounds of a way's own to two calls. The figures go into
benchmarks/results/both_towers_DEVICE.json.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from kept import keep, quartiles
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.nn import functional as F
from transformers import BertConfig, BertModel

TRAINED = 32
Way = Callable[[Tensor], Tensor]


class Batched(nn.Module):
    """One layer of both towers on (2, B, T, H), every product of both at once."""

    def __init__(self, layers: list[Any]) -> None:
        super().__init__()
        own = [layer.attention.self for layer in layers]
        self.heads = own[0].num_attention_heads
        self.project = self.stacked([[each.query, each.key, each.value] for each in own])
        self.attended = self.stacked([[layer.attention.output.dense] for layer in layers])
        self.inner = self.stacked([[layer.intermediate.dense] for layer in layers])
        self.outer = self.stacked([[layer.output.dense] for layer in layers])
        self.norms = nn.ParameterList()
        for each in (
            lambda layer: layer.attention.output.LayerNorm,
            lambda layer: layer.output.LayerNorm,
        ):
            self.norms.append(
                torch.stack([each(layer).weight.detach() for layer in layers])[:, None]
            )
            self.norms.append(torch.stack([each(layer).bias.detach() for layer in layers])[:, None])

    def stacked(self, linear: list[list[nn.Linear]]) -> nn.ParameterList:
        """Weights (2, in, out) and biases (2, 1, out) of the towers' linear maps, side by side."""
        weights = torch.stack(
            [torch.cat([one.weight.detach() for one in own]).T.contiguous() for own in linear]
        )
        return nn.ParameterList(
            [
                weights,
                torch.stack(
                    [torch.cat([one.bias.detach() for one in own])[None] for own in linear]
                ),
            ]
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """The layer's output."""
        towers, batch, tokens, size = hidden.shape
        rows = hidden.flatten(1, 2)
        parts = torch.baddbmm(self.project[1], rows, self.project[0]).view(
            towers * batch, tokens, 3, self.heads, -1
        )
        context = (
            F.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4))
            .transpose(1, 2)
            .reshape(rows.shape)
        )
        rows = rows + torch.baddbmm(self.attended[1], context, self.attended[0])
        rows = F.layer_norm(rows, (size,), eps=1e-12) * self.norms[0] + self.norms[1]
        inner = F.gelu(torch.baddbmm(self.inner[1], rows, self.inner[0]))
        rows = rows + torch.baddbmm(self.outer[1], inner, self.outer[0])
        rows = F.layer_norm(rows, (size,), eps=1e-12) * self.norms[2] + self.norms[3]
        return rows.view(hidden.shape)


def ways_of(device: str) -> dict[str, Way]:
    """The ways from both towers' embeddings, (2, B, T, H), to their last layers' outputs."""
    shape = {
        "hidden_size": 384,
        "num_attention_heads": 12,
        "num_hidden_layers": 6,
        "intermediate_size": 1536,
    }
    towers = [BertModel(BertConfig(vocab_size=10, **shape)).to(device).eval() for _ in range(2)]
    stacks: list[Any] = [tower.encoder.layer for tower in towers]
    batched = nn.ModuleList(Batched(list(pair)) for pair in zip(*stacks)).to(device)
    states = [stack_module_state(list(pair))[0] for pair in zip(*stacks)]
    # Plain attention: vmap has no rule for the fused one.
    plain = copy.deepcopy(towers[0])
    plain.set_attn_implementation("eager")
    over_towers = torch.vmap(
        lambda state, hidden: functional_call(plain.encoder.layer[0], state, (hidden,))
    )

    def each(hidden: Tensor, layer_of: Callable[[Any], Any] = lambda layer: layer) -> Tensor:
        ends = []
        for own, stack in zip(hidden, stacks):
            for layer in stack:
                own = layer_of(layer)(own)
            ends.append(own)
        return torch.stack(ends)

    def mapped(hidden: Tensor) -> Tensor:
        for state in states:
            hidden = over_towers(state, hidden)
        return hidden

    def at_once(hidden: Tensor, layer_of: Callable[[Any], Any] = lambda layer: layer) -> Tensor:
        for layer in batched:
            hidden = layer_of(layer)(hidden)
        return hidden

    # Layers share their code: one is compiled for all.
    compiled = {
        id(layer): torch.compile(layer, dynamic=False)
        for stack in (*stacks, batched)
        for layer in stack
    }
    return {
        "two calls": each,
        "one call, vmap": mapped,
        "one call, batched products": at_once,
        "two calls, compiled": lambda hidden: each(hidden, lambda layer: compiled[id(layer)]),
        "one call, batched products, compiled": lambda hidden: at_once(
            hidden, lambda layer: compiled[id(layer)]
        ),
    }


def timed(way: Way, hidden: Tensor, trains: bool) -> float:
    """The time of one pass."""
    clock = time.process_time if hidden.device.type == "cpu" else time.perf_counter
    began = clock()
    with torch.set_grad_enabled(trains):
        output = way(hidden)
    if trains:
        output.sum().backward()
    if hidden.device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - began


def main() -> None:
    """Measure all ways at all batches in turns and keep the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds, after one for warm-up")
    parser.add_argument("--tokens", type=int, default=12, help="of each sentence")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.manual_seed(0)
    ways, rows = ways_of(options.device), []
    for batch, trains in [*((batch, False) for batch in options.batches), (TRAINED, True)]:
        hidden = torch.randn(2, batch, options.tokens, 384, device=options.device)
        with torch.no_grad():
            expected = ways["two calls"](hidden)
            for way in ways.values():
                torch.testing.assert_close(way(hidden), expected, rtol=1e-4, atol=1e-4)
        # Short passes are timed many at once.
        times = max(1, 64 // batch)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(options.rounds + 1):
            for name, way in ways.items():
                taken = statistics.fmean(timed(way, hidden, trains) for _ in range(times))
                if number:
                    seconds[name].append(taken)
        for name, own in seconds.items():
            ratio = quartiles([each / base for each, base in zip(own, seconds["two calls"])])
            row = {
                "way": name,
                "batch": batch,
                "pass": "forward and backward" if trains else "forward",
            }
            rows.append(row | {"ms": round(1e3 * statistics.median(own), 2), "ratio": ratio})
            print(rows[-1], flush=True)
    keep(
        f"both_towers_{options.device}",
        {"tokens": options.tokens, "rounds": options.rounds, "rows": rows},
    )


if __name__ == "__main__":
    main()
