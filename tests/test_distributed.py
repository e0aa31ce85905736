"""Two processes on half a batch each against one process on the whole batch."""

import itertools
from functools import partial

import pytest
import torch
import torch.distributed as dist
from conftest import checkpoint_activations, make_model, make_pipeline, make_sentences
from processes import run_two
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from st_jtcse.abilities.sentence_views.view_blocks import ViewSpec
from st_jtcse.abilities.sentence_views.view_collator import ViewCollator
from st_jtcse.losses import (
    ArcCSELoss,
    ESimCSELoss,
    InfoCSELoss,
    ISCSELoss,
    JTCSELoss,
    LSRNSLoss,
    RankCSELoss,
    SimCSELoss,
    SNCSELoss,
    WhitenedCSELoss,
)

SENTENCES = make_sentences(12, seed=4)
LABELS = torch.nn.functional.normalize(
    torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
)
EARLIER = make_sentences(12, seed=5)
# Whose terms are of each process's rows only; the first two are of three views of each sentence.
OF_OWN_ROWS = {
    "ArcCSELoss": partial(ArcCSELoss, triplet_weight=0.5),
    "SNCSELoss": partial(SNCSELoss, margin_weight=0.5),
    "ESimCSELoss": partial(ESimCSELoss, queue_size=9, momentum=0.5),
    "ISCSELoss": partial(ISCSELoss, queue_size=20, smoothing_weight=0.5, neighbours=4),
    "WhitenedCSELoss": partial(WhitenedCSELoss, whitening_groups=8),
}
LOSSES = {
    "JTCSELoss": JTCSELoss,
    "SimCSELoss": SimCSELoss,
    "SimCSELoss, both views": partial(SimCSELoss, candidates="both_views"),
    "RankCSELoss": RankCSELoss,
    "RankCSELoss, CoSENT": partial(RankCSELoss, ranking="cosent"),
    "LSRNSLoss": LSRNSLoss,
    "LSRNSLoss, CoSENT": partial(LSRNSLoss, rank_loss="cosent"),
    **OF_OWN_ROWS,
    # Of a twin, and of one encoder whose last layer is computed for its first row.
    "JTCSELoss, sharded": JTCSELoss,
    "SimCSELoss, sharded": SimCSELoss,
}
WAYS = {"in one pass": {}, "in mini-batches": {"mini_batch_size": 5}}
VIEWS = [ViewSpec(type="crop"), ViewSpec(type="shuffle"), ViewSpec(type="negate")]


def half_a_batch(towers, result):
    """What one of two processes does: every loss of its half, with the gradients that both come to."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    half = slice(rank * 6, rank * 6 + 6)
    found = {}
    for name, way in itertools.product(LOSSES, WAYS):
        model = make(name, towers)
        loss = build(name, model, half, gather_across_devices=True, **WAYS[way])
        if name.endswith("sharded"):
            shard(model, checkpoint=not WAYS[way])
        else:
            loss.model = torch.nn.parallel.DistributedDataParallel(
                model, find_unused_parameters=True
            )
            loss.model.preprocess = model.preprocess
        torch.manual_seed(rank)  # What is drawn apart is the first process's.
        value = total(loss([features(name, model, SENTENCES[half])], LABELS[half]))
        value.backward()
        gradients = {
            key: whole(p.grad) for key, p in model.named_parameters() if p.grad is not None
        }
        found[f"{name} {way}"] = {"loss": value.detach(), "gradients": gradients}
        if has_past(loss):
            found[f"{name} {way}"]["queue"] = loss.past.rows()
    found["read"], own = reading(towers, half, rank), [None, None]
    dist.all_gather_object(own, found["read"])
    if rank == 0:
        torch.save(found | {"read": own}, result)
    dist.destroy_process_group()


def reading(towers, half, rank):
    """The gradients of a reader by a process's half."""
    model = make("SimCSELoss, sharded", towers)
    loss = InfoCSELoss(model, reading_weight=1.0).double()
    torch.manual_seed(rank)
    loss([model.preprocess(SENTENCES[half])])["masked_tokens"].backward()
    return {
        name: weight.grad
        for name, weight in loss.reader.named_parameters()
        if weight.grad is not None
    }


def shard(model, checkpoint):
    """As accelerate does it (FSDP2): each layer, and what is left."""
    names = list(model.state_dict())
    if checkpoint:
        checkpoint_activations(model)
    mesh = init_device_mesh("cpu", (2,))
    for module in list(model.modules()):
        if type(module).__name__ == "BertLayer":
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert list(model.state_dict()) == names


def whole(gradient):
    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient


def make(name, towers):
    model = make_model(towers[0]) if name == "SimCSELoss, sharded" else make_pipeline(towers)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.double().train()


def features(name, model, sentences):
    """A batch with the views that the case has."""
    if name not in ("ArcCSELoss", "SNCSELoss"):
        return model.preprocess(sentences)
    made = ViewCollator(model.preprocess, model=model, views=VIEWS, seed=7)(
        [{"sentence": text} for text in sentences]
    )
    return {key.removeprefix("sentence_"): value for key, value in made.items()}


def build(name, model, half=slice(None), **settings):
    loss = LOSSES[name](model, **settings)
    if has_past(loss):
        loss.past.double()
        loss([features(name, model, EARLIER[half])])
        return loss
    if name.startswith("LSRNSLoss"):
        # Of two halves, and of one.
        loss.use_pair_scores([(SENTENCES[1], SENTENCES[9], 0.9), (SENTENCES[7], SENTENCES[8], 0.1)])
    return loss


def has_past(loss):
    return getattr(loss, "past", None) is not None


def total(value):
    return sum(value.values()) if isinstance(value, dict) else value


@pytest.fixture(scope="module")
def of_two_processes(tower_folders, tmp_path_factory):
    """Every loss with its gradients, as two processes have them; one start of the two serves all."""
    folder = tmp_path_factory.mktemp("distributed")
    result = folder / "found.pt"
    run_two(half_a_batch, tuple(map(str, tower_folders)), result, folder=folder)
    return torch.load(result, weights_only=True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LOSSES)
def test_two_processes_have_the_gradient_of_the_union_batch(
    tower_folders, of_two_processes, name, way
):
    model = make(name, tuple(map(str, tower_folders)))
    loss = build(name, model)
    torch.manual_seed(0)
    value = total(loss([features(name, model, SENTENCES)], LABELS))
    value.backward()
    found = of_two_processes[f"{name} {way}"]
    if has_past(loss):
        assert len(loss.past.rows()) == loss.queue_size
        torch.testing.assert_close(found["queue"], loss.past.rows(), rtol=1e-9, atol=1e-9)
    # In one pass SimCSE's term is of each process's rows only, too.
    if name.startswith(("JTCSELoss", "LSRNSLoss")) or (WAYS[way] and name not in OF_OWN_ROWS):
        torch.testing.assert_close(found["loss"], value.detach(), rtol=1e-9, atol=1e-9)
    expected = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
    used = {key for key, gradient in expected.items() if gradient.abs().max() > 0}
    assert len(used) > 60 and used <= found["gradients"].keys()
    for key in used:
        torch.testing.assert_close(
            found["gradients"][key], expected[key], rtol=1e-8, atol=1e-10, msg=key
        )


def test_both_processes_train_one_reader(tower_folders, of_two_processes):
    first, second = (
        reading(tuple(map(str, tower_folders)), slice(at, at + 6), at // 6) for at in (0, 6)
    )
    for found in of_two_processes["read"]:
        assert found.keys() == first.keys() and len(first) > 30
        for name, gradient in found.items():
            torch.testing.assert_close(
                gradient, (first[name] + second[name]) / 2, rtol=1e-9, atol=1e-9
            )
    assert (first["output.weight"] - second["output.weight"]).abs().max() > 1e-6
