"""A resumed run gives the weights of an uninterrupted one, or says in a sentence why it does not go on."""

import pytest
from test_run import project, results, train, weights  # noqa: F401  # project is a fixture

from st_jtcse.training import stage as stages
from st_jtcse.training.checkpoints import MANIFEST, Checkpoints

ENCODER = ["--stage", "encoder"]
WITHOUT_DEV = ["--set", "args.eval_strategy=no", "--set", "args.save_strategy=steps", "--set", "args.save_steps=2"]


class Cut(Exception):
    """The end of a process."""


def cut_at_save(monkeypatch, step):
    """Let a run end as a kill does, right after its checkpoint at a step is complete."""
    save = Checkpoints.on_save

    def save_and_end(self, args, state, *rest, **more):
        save(self, args, state, *rest, **more)
        if state.global_step == step:
            raise Cut

    monkeypatch.setattr(Checkpoints, "on_save", save_and_end)


def cut_while_finishing(monkeypatch):
    def end(*rest):
        raise Cut

    monkeypatch.setattr(stages, "describe", end)


def cut(project, *options, **where):  # noqa: F811
    """Run until the cut; the exit status is that of a bug."""
    with pytest.MonkeyPatch.context() as patch:
        cut_at_save(patch, where["step"]) if where else cut_while_finishing(patch)
        assert train(project, *ENCODER, *options) == 1


@pytest.fixture
def run(project):  # noqa: F811
    return project / "run" / "encoder"


@pytest.mark.parametrize("options", [[], WITHOUT_DEV])
def test_a_stage_cut_off_while_it_finishes_takes_no_further_step(project, run, options, capsys):  # noqa: F811
    assert train(project, *ENCODER, *options, "--output-dir", str(project / "straight")) == 0
    cut(project, *options)
    assert (project / "run" / ".encoder.new").exists() and (run / "checkpoint-6" / MANIFEST).exists()
    assert train(project, *ENCODER, *options, "--resume") == 0
    (straight,), (resumed,) = (results(project, folder)["stages"] for folder in ("straight", "run"))
    assert resumed["weights_sha256"] == straight["weights_sha256"]
    assert resumed["steps"] == 6 and resumed["best_step"] == straight["best_step"]
    assert resumed["spearman"] == straight["spearman"]
