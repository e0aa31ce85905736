"""Losses and training arguments are resolved in a closed world and checked before anything runs."""

import dataclasses
import inspect
import re
import subprocess
import sys
from enum import Enum

import pytest
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses as theirs
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from st_jtcse import losses as ours
from st_jtcse.errors import UserError
from st_jtcse.losses.catalogue import loss_class, loss_names
from st_jtcse.papers import losses as of_papers
from st_jtcse.recipe.named_arguments import argument_faults, build_loss, loss_faults
from st_jtcse.recipe.schema import LossSpec

RUNNERS = {
    "output_dir",
    "seed",
    "data_seed",
    "resume_from_checkpoint",
    "load_best_model_at_end",
    "greater_is_better",
}
RUNNERS |= {"metric_for_best_model", "push_to_hub", "do_train", "do_eval", "do_predict"}


def spec(**block):
    return LossSpec.model_validate(block)


OURS = sorted([*ours.__all__, *of_papers.__all__])


@pytest.fixture(scope="module")
def model(tower_folders):
    encoder = Transformer(str(tower_folders[0]))
    return SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension(), "cls")])


def test_our_losses_come_before_those_of_sentence_transformers():
    for cross_encoder in (False, True):
        own = [name for name in OURS if name.startswith("CrossEncoder") == cross_encoder]
        assert loss_names(cross_encoder)[: len(own)] == own
    assert loss_class("JTCSELoss") is ours.JTCSELoss
    assert loss_class("CoSENTLoss") is theirs.CoSENTLoss
    assert loss_class("CrossEncoderCoSENTLoss", cross_encoder=True) is ours.CrossEncoderCoSENTLoss
    assert loss_class("MSELoss", cross_encoder=True) is not loss_class("MSELoss")


@pytest.mark.parametrize(
    "name", ["TripletDistanceMetric", "ContrastiveTensionDataLoader", "torch.nn.Linear", "Linear"]
)
def test_only_losses_are_resolved(name):
    assert name not in loss_names()
    with pytest.raises(UserError, match=f"^expected the name of a loss, found '{name}'"):
        loss_class(name)


def test_an_unknown_loss_names_the_nearest():
    sentence = (
        "expected the name of a loss, found 'MultipleNegativeRankingLoss'. Did you mean "
        "'MultipleNegativesRankingLoss'?"
    )
    assert loss_faults(spec(type="MultipleNegativeRankingLoss")) == [("type", sentence)]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "CoSENTLoss"},
        {"type": "CoSENTLoss", "scale": 20},
        {
            "type": "MultipleNegativesRankingLoss",
            "directions": ["query_to_doc", "doc_to_query"],
            "hardness_mode": None,
        },
        {"type": "SoftmaxLoss", "embedding_dimension": 8, "num_labels": 3},
        {"type": "EmbedDistillLoss", "distance_metric": "mse", "projection_dim": None},
        {"type": "ContrastiveLoss", "margin": 1, "size_average": False},
        {"type": "TripletLoss", "triplet_margin": 5.5},
        {"type": "CachedMultipleNegativesRankingLoss", "mini_batch_num_tokens": 2},
        {"type": "SimCSELoss", "temperature": 0.1, "candidates": "both_views"},
        {"type": "JTCSELoss", "ictm_weight": 1, "direction": "1_to_2", "seed": 7},
    ],
)
def test_arguments_that_fit_have_no_faults(block):
    assert loss_faults(spec(**block)) == []


@pytest.mark.parametrize(
    ("block", "faults"),
    [
        (
            {"type": "CoSENTLoss", "scal": 20.0},
            [("scal", "expected an argument of CoSENTLoss, found 'scal'. Did you mean 'scale'?")],
        ),
        (
            {"type": "CoSENTLoss", "model": "x"},
            [("model", "expected an argument of CoSENTLoss, found 'model'. Use one of: scale.")],
        ),
        (
            {"type": "CoSENTLoss", "scale": "20"},
            [("scale", "expected a number, found '20'. Remove the quotes.")],
        ),
        (
            {"type": "CoSENTLoss", "scale": True},
            [("scale", "expected a number, found true. Correct the value.")],
        ),
        (
            {"type": "CoSENTLoss", "scale": None},
            [("scale", "expected a number, found null. Correct the value.")],
        ),
        (
            {"type": "CoSENTLoss", "similarity_fct": "cos_sim"},
            [
                (
                    "similarity_fct",
                    "expected no value for what is Python code, found 'cos_sim'. Remove "
                    "'similarity_fct'.",
                )
            ],
        ),
        (
            {"type": "SoftmaxLoss", "num_labels": 3.0},
            [
                ("num_labels", "expected a whole number, found 3.0. Write 3."),
                (
                    "embedding_dimension",
                    "expected a whole number, which SoftmaxLoss requires, found none. Add "
                    "'embedding_dimension'.",
                ),
            ],
        ),
        (
            {"type": "EmbedDistillLoss", "distance_metric": "cosin"},
            [
                (
                    "distance_metric",
                    "expected one of 'mse', 'l2', 'cosine', found 'cosin'. Did you mean 'cosine'?",
                )
            ],
        ),
        (
            {"type": "MultipleNegativesRankingLoss", "hardness_mode": "x"},
            [
                (
                    "hardness_mode",
                    "expected one of 'in_batch_negatives', 'hard_negatives', 'all_negatives' or "
                    "null, "
                    "found 'x'. Correct the value.",
                )
            ],
        ),
        (
            {"type": "GISTEmbedLoss"},
            [
                (
                    "type",
                    "expected a loss whose arguments a recipe can give, found 'GISTEmbedLoss', "
                    "whose 'guide' is "
                    "Python code. Choose another loss.",
                )
            ],
        ),
        (
            {"type": "JTCSELoss", "temprature": 0.1, "direction": "both"},
            [
                (
                    "temprature",
                    "expected an argument of JTCSELoss, found 'temprature'. Did you mean "
                    "'temperature'?",
                ),
                (
                    "direction",
                    "expected one of 'random', '1_to_2', found 'both'. Correct the value.",
                ),
            ],
        ),
    ],
)
def test_arguments_that_do_not_fit_are_told(block, faults):
    assert loss_faults(spec(**block)) == faults


# Sentence-Transformers 6.2 still lists losses it deprecates, in favour of
# MultipleNegativesRankingLoss's `directions`.
@pytest.mark.filterwarnings("ignore:The .*SymmetricRankingLoss is deprecated:DeprecationWarning")
def test_every_loss_that_a_recipe_can_give_is_built_from_its_defaults(model):
    built = []
    for name in loss_names():
        # These look into the model for what a tiny BERT of one tower does not have, or load a
        # decoder.
        if loss_faults(spec(type=name)) or name in ("JTCSELoss", "DenoisingAutoEncoderLoss"):
            continue
        built.append(type(build_loss(spec(type=name), model)))
    assert ours.SimCSELoss in built
    assert theirs.MultipleNegativesRankingLoss in built
    assert len(built) > 15


def test_a_list_becomes_the_tuple_that_the_loss_wants(model):
    loss = build_loss(
        spec(
            type="MultipleNegativesRankingLoss", scale=10, directions=["query_to_doc", "doc_to_doc"]
        ),
        model,
    )
    assert loss.directions == ("query_to_doc", "doc_to_doc")
    assert isinstance(loss, torch.nn.Module)
    assert loss.scale == 10.0


@pytest.mark.parametrize(
    ("block", "faults"),
    [
        (
            {"type": "ESimCSELoss", "momentum": 1.5, "temperature": -1, "queue_size": 0},
            [
                ("momentum", "expected a number below 1, found 1.5. Correct the value."),
                ("temperature", "expected a number above 0, found -1. Correct the value."),
                ("queue_size", "expected a number above 0, found 0. Correct the value."),
            ],
        ),
        (
            {
                "type": "LSRNSLoss",
                "contrastive_weight": 0,
                "rank_weight": 0.0,
                "smoothing_weight": 0,
            },
            [
                (
                    "contrastive_weight",
                    "expected one weight above 0, found 0 for contrastive_weight, rank_weight and "
                    "smoothing_weight. "
                    "Make one of them positive.",
                )
            ],
        ),
        (
            {
                "type": "RankCSELoss",
                "cosent_scale": 0,
                "teacher_temperature": 0.0,
                "distillation_weight": -1,
            },
            [
                ("cosent_scale", "expected a number above 0, found 0. Correct the value."),
                ("teacher_temperature", "expected a number above 0, found 0.0. Correct the value."),
                (
                    "distillation_weight",
                    "expected a number of at least 0, found -1. Correct the value.",
                ),
            ],
        ),
        ({"type": "RankCSELoss", "teacher_temperature": None}, []),
        (
            {"type": "JTCSELoss", "cross_weight": -0.5, "mini_batch_size": 0},
            [
                ("cross_weight", "expected a number of at least 0, found -0.5. Correct the value."),
                ("mini_batch_size", "expected a number above 0, found 0. Correct the value."),
            ],
        ),
        (
            {"type": "SimCSELoss", "temperature": float("inf")},
            [("temperature", "expected a finite number, found inf. Correct the value.")],
        ),
        (
            {"type": "RankCSELoss", "consistency_weight": float("nan")},
            [("consistency_weight", "expected a finite number, found nan. Correct the value.")],
        ),
        # Of a wrong type: told once, and the others beside it.
        (
            {"type": "SimCSELoss", "temperature": "0.1", "mini_batch_size": -1},
            [
                ("temperature", "expected a number, found '0.1'. Remove the quotes."),
                ("mini_batch_size", "expected a number above 0, found -1. Correct the value."),
            ],
        ),
    ],
)
def test_values_out_of_range_are_told_without_a_model(block, faults):
    assert loss_faults(spec(**block)) == faults


# What a loss block of an earlier version said, and what to say instead.
MOVED = {
    "angular_margin": "ArcCSELoss",
    "soft_negatives": "SNCSELoss",
    "least_gap": "SNCSELoss",
    "most_gap": "SNCSELoss",
    "queue_size": "ESimCSELoss",
    "momentum": "ESimCSELoss",
    "instance_smoothing": "ISCSELoss",
    "smoothing_neighbours": "ISCSELoss",
    "whitening_groups": "WhitenedCSELoss",
    "whitened_positives": "WhitenedCSELoss",
    "reading": "DiffCSELoss",
    "reading_weight": "DiffCSELoss",
    "mask_share": "DiffCSELoss",
    "generator": "DiffCSELoss",
}


@pytest.mark.parametrize("argument", MOVED)
def test_an_argument_that_another_loss_has_now_names_it(argument):
    ((key, text),) = loss_faults(spec(type="SimCSELoss", **{argument: 1}))
    assert key == argument
    assert text.startswith(
        f"expected an argument of SimCSELoss, found '{argument}', which it had in an earlier "
        f"version. Choose {MOVED[argument]}"
    )
    for name in re.findall(r"\w+Loss\b", text):
        assert loss_class(name).declaration.sentences
    for name in re.findall(r"(\w+Loss), where it is '(\w+)'", text):
        assert name[1] in inspect.signature(loss_class(name[0])).parameters


def test_each_moved_argument_is_told_once_and_values_beside_it_too():
    block = spec(type="SimCSELoss", queue_size=8, instance_smoothing=0.1, temperature=0)
    assert [key for key, _ in loss_faults(block)] == [
        "queue_size",
        "instance_smoothing",
        "temperature",
    ]


@pytest.mark.parametrize("argument", ["epsilon", "softness", "groups", "length_chunks"])
def test_a_constant_that_is_no_argument_any_more_is_to_be_removed(argument):
    ((key, text),) = loss_faults(spec(type="LSRNSLoss", **{argument: 1}))
    assert key == argument and f"found '{argument}', which it had" in text and "Remove it" in text


def test_a_cross_encoders_loss_tells_its_values_too():
    faults = [("scale", "expected a number above 0, found -1. Correct the value.")]
    assert loss_faults(spec(type="CrossEncoderCoSENTLoss", scale=-1), scores_pairs=True) == faults


@pytest.mark.parametrize("name", OURS)
def test_what_a_loss_declares_is_of_its_arguments_and_met_by_its_defaults(name):
    loss = getattr(ours, name)
    parameters = inspect.signature(loss).parameters
    declared = loss.declaration
    named = {*declared.one_above_zero, declared.pooler_weight, declared.teachers_weight}
    named |= {declared.queue, declared.third_view} - {True, False}
    named -= {None}
    assert {"model"} < set(parameters) > named
    assert loss_faults(spec(type=name), declared.cross_encoder) == []
    # Each weight, temperature and scale has its range.
    for key in parameters:
        if key.endswith(("weight", "temperature", "scale")):
            for value in (-1, float("inf")):
                ((told, _),) = loss_faults(spec(type=name, **{key: value}), declared.cross_encoder)
                assert told == key


def test_building_a_faulty_block_is_refused(model):
    with pytest.raises(UserError) as caught:
        build_loss(spec(type="CoSENTLoss", scal=1), model)
    assert (
        str(caught.value)
        == "loss.scal: expected an argument of CoSENTLoss, found 'scal'. Did you mean 'scale'?"
    )


def test_a_value_that_the_loss_itself_refuses_is_the_users_fault(model):
    with pytest.raises(UserError) as caught:
        build_loss(spec(type="MultipleNegativesRankingLoss", scale=0), model)
    assert str(caught.value).startswith(
        "loss.type: expected arguments that MultipleNegativesRankingLoss accepts, found: Scale "
        "must be a positive"
    )


def test_the_defaults_of_all_training_arguments_are_accepted():
    defaults = {}
    for field in dataclasses.fields(SentenceTransformerTrainingArguments):
        if not field.init or field.name in RUNNERS or field.name.startswith("hub_"):
            continue
        default = (
            field.default
            if field.default_factory is dataclasses.MISSING
            else field.default_factory()
        )
        defaults[field.name] = default.value if isinstance(default, Enum) else default
    assert len(defaults) > 80
    assert argument_faults(defaults) == []


@pytest.mark.parametrize(
    "args",
    [
        {
            "bf16": True,
            "report_to": "none",
            "optim": "adamw_torch",
            "lr_scheduler_kwargs": {"num_cycles": 2},
        },
        {
            "report_to": ["tensorboard"],
            "eval_strategy": "steps",
            "save_strategy": "best",
            "eval_steps": 0.1,
        },
        {
            "bf16": "auto",
            "learning_rate": 1,
            "num_train_epochs": 1,
            "warmup_steps": 0.1,
            "logging_steps": 5,
        },
        {
            "batch_sampler": "no_duplicates",
            "multi_dataset_batch_sampler": "round_robin",
            "prompts": {"a": "query: "},
        },
        {
            "fsdp": "full_shard auto_wrap",
            "fsdp_config": {"min_num_params": 1},
            "debug": None,
            "ddp_backend": "cpu:gloo",
        },
        {
            "dataloader_multiprocessing_context": None,
            "accelerator_config": {"split_batches": True},
            "log_level": "info",
        },
        {
            "learning_rate_mapping": {"head.*": 1e-3},
            "label_names": ["label"],
            "max_grad_norm": float("inf"),
        },
    ],
)
def test_values_that_transformers_accepts_have_no_faults(args):
    assert argument_faults(args) == []


@pytest.mark.parametrize(
    ("args", "faults"),
    [
        (
            {"lerning_rate": 1e-5},
            [
                (
                    "lerning_rate",
                    "expected a SentenceTransformerTrainingArguments field, found 'lerning_rate'. "
                    "Did you mean 'learning_rate'?",
                )
            ],
        ),
        (
            {"zzz": 1},
            [
                (
                    "zzz",
                    "expected a SentenceTransformerTrainingArguments field, found 'zzz'. Remove "
                    "it.",
                )
            ],
        ),
        (
            {"learning_rate": "1e-5"},
            [("learning_rate", "expected a number, found '1e-5'. Remove the quotes.")],
        ),
        ({"max_steps": 10.0}, [("max_steps", "expected a whole number, found 10.0. Write 10.")]),
        (
            {"bf16": "yes"},
            [("bf16", "expected true or false or 'auto', found 'yes'. Correct the value.")],
        ),
        (
            {"eval_strategy": "epochs"},
            [
                (
                    "eval_strategy",
                    "expected one of 'no', 'steps', 'epoch', found 'epochs'. Did you mean 'epoch'?",
                )
            ],
        ),
        (
            {"train_sampling_strategy": "randm"},
            [
                (
                    "train_sampling_strategy",
                    "expected one of 'random', 'sequential', 'group_by_length', "
                    "'batch_rebalance', found 'randm'. Did you mean 'random'?",
                )
            ],
        ),
        (
            {"lr_scheduler_type": "linaer"},
            [
                (
                    "lr_scheduler_type",
                    "expected one of 'linear', 'cosine', 'cosine_with_restarts', 'polynomial', "
                    "'constant', 'constant_with_warmup', ..., found 'linaer'. Did you mean "
                    "'linear'?",
                )
            ],
        ),
        (
            {"seed": 3},
            [
                (
                    "seed",
                    "expected no 'seed' here, found one. Set the recipe's 'seed', and remove "
                    "'seed'.",
                )
            ],
        ),
        (
            {"hub_model_id": "a/b"},
            [
                (
                    "hub_model_id",
                    "expected no 'hub_model_id' here, found one. Use st-train --push, and remove "
                    "'hub_model_id'.",
                )
            ],
        ),
        (
            {"metric_for_best_model": "loss"},
            [
                (
                    "metric_for_best_model",
                    "expected no 'metric_for_best_model' here, found one. Give 'evaluate.dev': "
                    "its score chooses the checkpoint, and remove 'metric_for_best_model'.",
                )
            ],
        ),
    ],
)
def test_training_arguments_that_do_not_fit_are_told(args, faults):
    assert argument_faults(args) == faults


@pytest.mark.parametrize("key", sorted(RUNNERS | {"overwrite_output_dir", "hub_token"}))
def test_what_the_runner_decides_is_refused(key):
    ((found, text),) = argument_faults({key: None})
    assert found == key
    assert text.startswith(f"expected no '{key}' here, found one. ")
    assert text.endswith(f", and remove '{key}'.")


def test_importing_the_recipe_loader_leaves_sentence_transformers_for_later():
    code = "import sys, st_jtcse.recipe.load; sys.exit('sentence_transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
