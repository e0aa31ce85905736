"""What ARCHITECTURE.md says of where things are added, done: a view in a package of one's own, and a
pooling in the two files that the table names.
"""

import json
import re
import shutil
from pathlib import Path

import pytest
from conftest import make_sentences, save_encoder
from processes import run_code

ROOT = Path(__file__).parents[1]
FILES = dict(
    re.findall(
        r"<!-- file: (\S+) -->\n```\w+\n(.*?)```",
        (ROOT / "docs" / "views.md").read_text(),
        flags=re.DOTALL,
    )
)
RUN = """
import json, sys

copy, installed, project = sys.argv[1:]
sys.path[:0] = [copy, installed]
from st_jtcse.cli.train import main

def train(folder, *settings):
    own = [f"cache_dir={project}/cache", "args.use_cpu=true", *settings]
    options = [part for setting in own for part in ("--set", setting)]
    return main([f"{project}/recipe.yaml", "--output-dir", f"{project}/{folder}", *options])

found = {
    "trained": train("run", "stages.student.model.pooling=middle"),
    "share": train("no", "stages.student.views={type: tidy, share: 0.5}"),
    "name": train("no", "stages.student.views=tidyy"),
    "broken": train("no", "stages.student.views=torn"),
    "pooling": train("no", "stages.student.model.pooling=midle"),
}
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(f"{project}/run/student", device="cpu")
found["modes"] = [module.pooling_mode for module in model if hasattr(module, "pooling_mode")]
from st_jtcse.abilities.sentence_views.view_kinds import kinds
from random import Random

found["tidied"] = kinds()["tidy"].words(["b", "a", "b"], 1.0, Random(0))
print(json.dumps(found))
"""


def changed(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1, f"{path.name} has no single place for a pooling"
    path.write_text(text.replace(old, new))


@pytest.fixture
def copy(tmp_path):
    """The package with a pooling more: its name, and its modules."""
    place = tmp_path / "copy"
    shutil.copytree(ROOT / "st_jtcse", place / "st_jtcse")
    shutil.copytree(ROOT / "model_cards", place / "model_cards")
    package = place / "st_jtcse"
    changed(package / "pooling_names.py", '    "max",\n', '    "max",\n    "middle",\n')
    changed(
        package / "pooling_names.py",
        '    "max": "max',
        '    "middle": "the middle",\n    "max": "max',
    )
    changed(
        package / "modules" / "loading.py",
        '        if name == "first_last":\n',
        '        if name == "middle":\n            return [Pooling(size, "max")]\n'
        '        if name == "first_last":\n',
    )
    return place


def test_a_view_of_ones_own_and_a_pooling_train(copy, tmp_path):
    installed, project = tmp_path / "installed", tmp_path / "project"
    about = installed / "my_views-1.0.dist-info"
    about.mkdir(parents=True)
    (installed / "my_views.py").write_text(FILES["my_views.py"])
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-views\nVersion: 1.0\n")
    group, line = re.search(r'entry-points."(.+)"\]\n(.+)\n', FILES["pyproject.toml"]).groups()
    line = line.replace('"', "")
    (about / "entry_points.txt").write_text(f"[{group}]\n{line}\ntorn = no_such_package:Torn\n")
    save_encoder(project / "encoder", 1)
    (project / "text.txt").write_text("\n".join(make_sentences(40)) + "\n")
    recipe = FILES["recipe.yaml"].replace("embedded", "./encoder, pooling: cls")
    (project / "recipe.yaml").write_text(recipe)
    said = run_code(RUN, str(copy), str(installed), str(project), folder=tmp_path)
    found = json.loads(said.splitlines()[-1])
    assert found.pop("modes") == ["max"] and found.pop("tidied") == ["a", "b", "b"]
    wrong = dict.fromkeys(("share", "name", "broken", "pooling"), 2)
    assert found == {"trained": 0, **wrong}, said
    assert "expected no 'share' beside 'tidy', found 0.5." in said
    assert "found 'tidyy'. Did you mean 'tidy'" in said
    assert "expected a view that can be imported, found 'torn'" in said
    assert "found 'midle'. Did you mean 'middle'" in said
