"""What a run recalls of its models' vectors changes no byte of its result."""

from contextlib import nullcontext

import pytest
from test_run import project, results, train  # noqa: F401  # project is a fixture

from st_jtcse.training import runner


@pytest.mark.usefixtures("unrehearsed")
def test_a_run_comes_to_what_it_would_by_encoding_all(project, monkeypatch):  # noqa: F811
    found = []
    for folder in ("recalled", "encoded"):
        assert train(project, "--set", f"output_dir={project / folder}") == 0
        found.append(results(project, folder))
        monkeypatch.setattr(runner, "recalling", nullcontext)
    keys = ("spearman", "spearman_start", "as_shipped", "weights_sha256", "verdicts")
    first, second = (
        [{key: stage[key] for key in keys} for stage in run["stages"]] for run in found
    )
    assert first == second
