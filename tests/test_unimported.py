"""What is read of the libraries' sources is what they say when they are imported."""

import dataclasses
import inspect
import json
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Literal

import pytest

from st_jtcse import unimported
from st_jtcse.losses.catalogue import declaration_of, loss_class, loss_names, losses_that
from st_jtcse.recipe import load
from st_jtcse.recipe.named_arguments import _training_arguments
from st_jtcse.signatures import arguments_of
from st_jtcse.unimported import Unread, current, fields_of, module, reading
from st_jtcse.wording import words

# In a process of its own, where no library is imported, and none must be.
_ALONE = "import json, sys; sys.path[:0] = [{folder!r}]; import test_unimported as own; {do}"
# A key of a recipe, and a value that its library refuses.
FAULTS = [
    "stages.joint.loss.type=JTCSLoss",
    "stages.joint.loss.type=Banana",
    "stages.joint.loss.type=MatryoshkaLoss",
    "stages.joint.loss.type=CoSENTLoss",
    "stages.joint.loss.temprature=1",
    "stages.joint.loss.temperature=-1",
    "stages.joint.loss.temperature=warm",
    "stages.joint.loss.temperature='0.1'",
    "stages.joint.loss.direction=2_to_1",
    "stages.joint.loss.length_chunks=2",
    "stages.joint.loss.mini_batch_size=0",
    "stages.encoder_1.loss.angular_margin=10",
    "stages.encoder_1.loss={type: TripletLoss, distance_metric: cosine}",
    "stages.encoder_1.loss={type: SoftmaxLoss}",
    "args.learning_rat=1e-5",
    "args.learning_rate=fast",
    "args.learning_rate=-1",
    "args.num_train_epochs=0",
    "args.per_device_train_batch_size=8.5",
    "args.lr_scheduler_type=quick",
    "args.batch_sampler=no_duplicate",
    "args.multi_dataset_batch_sampler=3",
    "args.eval_strategy=always",
    "args.train_sampling_strategy=sorted",
    "args.gradient_checkpointing_kwargs=5",
    "args.prompts=[a]",
    "args.bf16=yes",
    "args.fsdp=3",
    "args.warmup_ratio=2",
    "args.output_dir=x",
    "args.hub_token=secret",
    "data.train=5",
]


def losses():
    """All that recipes know of losses, as text."""
    found = {}
    for cross in (False, True):
        for name in loss_names(cross):
            loss = loss_class(name, cross)
            arguments = {
                key: [words(one.annotation), one.required, repr(one.annotation)]
                for key, one in arguments_of(loss.__init__).items()
                if one.annotation is not None
            }
            plain = dataclasses.replace(declaration_of(loss), defaults={})
            found[f"{name} {cross}"] = [loss.__module__, repr(plain), arguments]
    facts = ("teachers", "third_view", "judged_pairs")
    return [found, {fact: losses_that(fact) for fact in facts}]


def training_arguments():
    """The names of all training arguments, and what most of them take."""
    found, unread = {}, []
    for name, look_up in _training_arguments(current()).items():
        try:
            own = look_up()
        except Unread:
            unread.append(name)
            continue
        known = own.annotation is not None
        default = own.default if isinstance(own.default, (int, float, str)) else None
        found[name] = [words(own.annotation) if known else None, default]
    return found, unread


def faults(overrides):
    """What is told of each override, by itself."""
    told = {}
    for override in overrides:
        try:
            load.load_recipe("quickstart", [override])
        except load.UserError as error:
            told[override] = list(error.faults)
    return told


def bundled():
    """The bundled recipes that cannot be checked unless a library is imported."""
    from st_jtcse.bundled import recipes

    left = []
    with reading():
        for name in recipes():
            try:
                load._found(load.read_recipe(name)) and left.append(f"refused: {name}")
            except Unread:
                left.append(name)
    return left


def alone(do):
    """What a fresh process says, which must not import torch."""
    do = f"print(json.dumps({do})); assert 'torch' not in sys.modules"
    code = _ALONE.format(folder=str(Path(__file__).parent), do=do)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def read(name):
    """What one of these functions finds by reading."""
    with reading():
        return globals()[name]()


def test_every_loss_reads_as_it_is_when_it_is_imported():
    assert alone("own.read('losses')") == json.loads(json.dumps(losses()))


def test_every_training_argument_reads_as_it_is_when_it_is_imported():
    (by_source, unread), (imported, nothing) = (
        alone("own.read('training_arguments')"),
        (training_arguments()),
    )
    assert not nothing and list(imported) == [
        name for name in imported if name in by_source or name in unread
    ]
    # What stands under a condition, or is what a function returns, is left to who imports it.
    assert set(unread) == {"log_level", "log_level_replica", "optim", "parallelism_config"}
    assert by_source == {name: imported[name] for name in by_source} and len(by_source) > 100


def test_faults_read_word_by_word_as_when_the_libraries_are_imported():
    import sentence_transformers  # noqa: F401  # So that nothing is read here.

    told = alone(f"own.faults({FAULTS!r})")
    assert told == faults(FAULTS)
    assert len(told) == len(FAULTS) and all(map(len, told.values()))


def test_what_is_right_is_right_by_its_source_too():
    """Of the bundled recipes, those alone are left to the libraries whose loss weighs arguments
    against each other, or that name an attention.
    """
    left = alone("own.bundled()")
    assert not [name for name in left if name.startswith("refused")]
    for name in left:
        loaded = load.read_recipe(name, [])
        losses = {stage.loss.type for stage in loaded.stages if stage.loss}
        assert losses & {"SNCSELoss", "ISCSELoss"}
    assert len(left) < 6


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that fails where it is imported."""

    def write(**files):
        folder = tmp_path / "slow_package"
        folder.mkdir()
        for name, text in {"__init__": "raise RuntimeError", **files}.items():
            (folder / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)

    return write


SHAPES = """
from __future__ import annotations
import enum
from typing import TYPE_CHECKING, Literal
from . import colours
from .colours import Colour as Shade
from torch import Tensor, nn
if TYPE_CHECKING:
    from somewhere import Unknown
try:
    import maybe
except ImportError:
    maybe = None
SIDES = Literal[3, 4]
if enum:
    EDGES = Literal[3]

class Base(nn.Module):
    kind = "base"
    def __init__(self, *sizes: int, width: float = 1.5, **rest) -> None:
        raise RuntimeError
    def area(self): raise RuntimeError

class Shape(Base):
    colour = colours.Colour.RED
    area_of = kind_of(1)
    def __init__(self, model, sides: SIDES = 3, shade: Shade | None = None, what: Unknown = None,
                 edges: EDGES = 3, tensor: Tensor | int = 0, made=nn.Identity(), own=colours.Own()):
        raise RuntimeError
class Made(Base, metaclass=type): ...
"""
COLOURS = """
from enum import Enum
from pathlib import Path
from dataclasses import dataclass, field
from typing import ClassVar
class Text(str, Enum):
    @classmethod
    def _missing_(cls, value): raise ValueError
class Colour(Text):
    RED = "red"
    BLUE = "blue"
class Own:
    def __init__(self, kind="own"): raise RuntimeError
@dataclass
class Bare:
    count: int = 3
    items: list[str] = field(default_factory=list, metadata={"choices": ("a", "b")})
    hidden: int = field(init=False, default=1)
    shared: ClassVar[int] = 4
@dataclass
class Whole(Bare):
    colour: Colour = Colour.BLUE
    count: float = unknown()
"""


def test_a_class_has_its_bases_attributes_and_signature(package):
    package(shapes=SHAPES, colours=COLOURS)
    with reading():
        found = module("slow_package.shapes").Shape
        assert [base.__name__ for base in found.__mro__][:3] == ["Shape", "Base", "Module"]
        assert found.kind == "base" and found.colour.value == "red"
        assert isinstance(found.colour, Enum) and found.colour == "red"
        with pytest.raises(Unread):
            getattr(found, "area_of")  # noqa: B009
        with pytest.raises(Unread, match="would have to run"):
            found.area(None)
        parameters = inspect.signature(found.__init__).parameters
        assert list(parameters)[:3] == ["self", "model", "sides"]
        assert parameters["sides"].default == 3 and parameters["shade"].default is None
        base = inspect.signature(found.__mro__[1].__init__).parameters
        kinds = [one.kind.name for one in base.values()]
        assert kinds[1:] == ["VAR_POSITIONAL", "KEYWORD_ONLY", "VAR_KEYWORD"]
        assert set(unimported.classes_of(module("slow_package.colours"))) == {
            "Text", "Colour", "Own", "Bare", "Whole"
        }  # fmt: skip


def test_an_annotation_that_a_source_does_not_tell_is_left_to_who_imports_it(package):
    package(shapes=SHAPES.replace("edges: EDGES = 3, ", ""), colours=COLOURS)
    with reading():
        shape = module("slow_package.shapes").Shape
        arguments = arguments_of(shape.__init__)
        assert arguments["sides"].annotation == Literal[3, 4]
        assert words(arguments["shade"].annotation) == "one of 'red', 'blue' or null"
        # A name for type checkers alone has no value in the module itself.
        assert arguments["what"].annotation is None
        assert arguments["tensor"].annotation is int
        assert arguments["made"].annotation is None and arguments["own"].annotation is None


@pytest.mark.parametrize("name", ["EDGES", "maybe", "Made", "nothing"])
def test_what_a_condition_or_a_metaclass_makes_is_not_read(package, name):
    package(shapes=SHAPES, colours=COLOURS)
    with reading(), pytest.raises(Unread):
        getattr(module("slow_package.shapes"), name)


def test_a_dataclass_has_the_fields_of_its_bases_in_their_order(package):
    package(colours=COLOURS)
    with reading():
        fields = fields_of(module("slow_package.colours").Whole)
        assert list(fields) == ["count", "items", "colour"]
        assert fields["colour"][0]().default.value == "blue"
        assert fields["items"][0]().metadata["choices"] == ("a", "b")
        with pytest.raises(Unread):
            fields["count"][0]()
        with pytest.raises(Unread):  # Nobody has written its signature.
            inspect.signature(module("slow_package.colours").Bare.__init__)


def test_outside_of_reading_modules_are_imported(package):
    package(shapes=SHAPES)
    with pytest.raises(RuntimeError):
        module("slow_package.shapes")
    assert current() is None
    with reading():
        assert module("json") is json and module("torch") is sys.modules["torch"]
        with pytest.raises(Unread, match="has no source"):
            module("no_such_package_anywhere.at_all")
