"""Whichever is imported first, saved twins and ensembles load without a flag; each order in a
process of its own.
"""

import os
import subprocess
import sys

import pytest
from conftest import make_pipeline
from processes import run_code

import st_jtcse
from st_jtcse.modules import ensemble_of, save_for_inference
from st_jtcse.towers import TwinEncoderModel

LOAD = """
for folder in sys.argv[1:]:
    kind = folder.rpartition("/")[2]
    assert AutoConfig.from_pretrained(folder).model_type == f"{kind}_encoder"
"""
# The package alone is light, asks for nothing, and answers who only looks for transformers.
PACKAGE_FIRST = f"""
import sys, time
begin = time.process_time()
import st_jtcse
assert time.process_time() - begin < 0.1
assert not {{"torch", "transformers", "numpy"}} & set(sys.modules)
assert "TwinEncoderModel" in dir(st_jtcse) and not hasattr(st_jtcse, "TwinModel")
import importlib.util
assert importlib.util.find_spec("transformers").origin.endswith("transformers/__init__.py")
assert "transformers" not in sys.modules
finders = list(sys.meta_path)

from transformers import AutoConfig
{LOAD}
import importlib, importlib.metadata, importlib.resources, transformers
assert len(set(finders) - set(sys.meta_path)) == 1, "the finder has done its work"
assert "exec_module" not in vars(transformers.__spec__.loader)
assert importlib.resources.files(transformers).joinpath("__init__.py").is_file()
assert importlib.metadata.version("st-jtcse") == st_jtcse.__version__
AutoConfig = importlib.reload(transformers).AutoConfig
importlib.reload(st_jtcse)
{LOAD}
from transformers import AutoModel
assert type(AutoModel.from_pretrained(sys.argv[1])) is st_jtcse.TwinEncoderModel
"""
LIBRARY_FIRST = """
import sys
from sentence_transformers import SentenceTransformer
assert "st_jtcse" not in sys.modules
import st_jtcse
for folder in sys.argv[1:]:
    assert SentenceTransformer(folder, device="cpu").encode(["a dog"]).shape == (1, 32)
"""
# The file's own import of transformers is the first: the towers are half imported when they are to
# be registered.
TOWERS_FIRST = f"""
import sys
from st_jtcse.towers.modeling_twin_encoder import TwinEncoderModel
import st_jtcse
assert st_jtcse.TwinEncoderModel is TwinEncoderModel
from transformers import AutoConfig
{LOAD}
"""


@pytest.fixture(scope="module")
def saved(tower_folders, tmp_path_factory):
    folders = [tmp_path_factory.mktemp("saved") / name for name in ("twin", "ensemble")]
    for folder, model in zip(
        folders,
        (make_pipeline(tower_folders), ensemble_of(tower_folders, (0.5, 0.5), pooling="cls")),
    ):
        save_for_inference(model, folder)
    return [str(folder) for folder in folders]


@pytest.mark.parametrize(
    "script", [PACKAGE_FIRST, TOWERS_FIRST], ids=["package first", "towers first"]
)
def test_a_saved_model_loads_without_a_flag(script, saved):
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, *saved], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_saved_model_loads_without_a_flag_where_the_library_came_first(saved, tmp_path):
    run_code(LIBRARY_FIRST, *saved, folder=tmp_path)


def test_public_names_are_those_of_the_towers():
    assert st_jtcse.TwinEncoderModel is TwinEncoderModel
    assert {*st_jtcse.__all__} <= {*dir(st_jtcse)}
    with pytest.raises(AttributeError, match="module 'st_jtcse' has no attribute 'TwinModel'"):
        _ = st_jtcse.TwinModel
