"""Suites, tasks and known models of installed packages, by the documented way."""

import re
import sys
from pathlib import Path

import pytest
from conftest import make_model

from st_jtcse.errors import UserError
from st_jtcse.evaluation import given_models, protocols
from st_jtcse.evaluation.selection import named_suite, select, suite_of_tasks

PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"
SUITES = """
mine:
  source: A table of mine
  protocol: mine
  metric: accuracy
  rows:
    - {paper: One, task: one, reported: {Theirs: 50.0}}
    - {paper: Two, task: two}
"""
MORE = """
    def row(self, task):
        return {"paper": task, "protocol": "mine", "task": task} if task == "one" else None

    def job(self, row, folder):
        from st_jtcse.errors import DataUnavailable

        if row.protocol != "mine":
            return None
        if row.task == "two":
            raise DataUnavailable("two is nowhere")
        return f"the job of {row.task}"

    def usage(self, model):
        return Usage({"pooling": "mean"}, "embeds by the mean") if "known" in model else None
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install the protocol of the page, with its other methods; or a broken one."""
    toml, code = re.search(
        r"## Suites of your own.*?```toml\n(.*?)```.*?```python\n(.*?)```",
        PAGE.read_text(),
        flags=re.DOTALL,
    ).groups()
    code = code.replace("import EvaluationProtocol", "import EvaluationProtocol, Usage")

    def install(text=code + MORE):
        about = tmp_path / "my_suites-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-suites\nVersion: 1.0\n")
        group, line = re.search(r'entry-points."(.+)"\]\n(.+)\n', toml).groups()
        (about / "entry_points.txt").write_text(f"[{group}]\n" + line.replace('"', "") + "\n")
        (tmp_path / "my_suites.py").write_text(text)
        (tmp_path / "suites.yaml").write_text(SUITES)
        monkeypatch.syspath_prepend(str(tmp_path))
        clear()

    def clear():
        protocols.protocols.cache_clear()
        protocols.suites.cache_clear()
        sys.modules.pop("my_suites", None)

    yield install
    monkeypatch.undo()
    clear()


def test_a_package_adds_a_suite_tasks_and_a_known_model(installed, tower_folders, tmp_path):
    installed()
    suite = named_suite("mine")
    assert [row.job for row in suite.rows] == ["mine/one", "mine/two"]
    assert select([suite], None) == {
        "mine/one": "the job of one",
        "mine/two": "two is nowhere.",
    }
    assert suite_of_tasks(["one"]).rows[0].job == "mine/one"
    assert list(named_suite("sts7").rows)  # The papers' are there too.
    known = tmp_path / "known"
    make_model(tower_folders[0])[0].save(str(known))
    found = given_models.load_model(str(known), device="cpu")
    assert found.note.endswith("embeds by the mean") and found.model[1].pooling_mode == "mean"


def test_a_protocol_that_does_not_import_is_named(installed):
    installed("import no_such_package\n")
    with pytest.raises(UserError, match="a protocol that can be imported, found 'mine'"):
        named_suite("sts7")


def test_what_no_protocol_knows_is_left_to_mteb():
    base = protocols.EvaluationProtocol()
    row = suite_of_tasks(["senteval/STSB"]).rows[0]
    assert (base.suites(), base.row("STS12"), base.job(row, None), base.usage("bert")) == (
        {},
        None,
        None,
        None,
    )
