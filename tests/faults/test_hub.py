"""A Hub that goes away while a run needs a model of it."""

from huggingface_hub import HfApi

from faults.conftest import weights
from st_jtcse.cli.train import main


def test_a_hub_that_vanishes_is_told_and_the_run_goes_on_when_it_is_back(
    hub, project, undisturbed, monkeypatch, capsys
):
    api = HfApi(endpoint=hub.endpoint, token=hub.write_token)
    api.create_repo("org/a")
    api.upload_folder(repo_id="org/a", folder_path=project / "a")
    monkeypatch.chdir(project)
    command = ["recipe.yaml", "--stage", "encoder", "--set", "stages.encoder.model.base=org/a"]
    hub.cut("GET", "/download/*", after_bytes=1000, reset=True, times=1000)
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "org/a" in said and "Traceback" not in said
    assert not weights(project)
    hub.heal()
    assert main([*command, "--resume"]) == 0
    assert weights(project)["encoder"] == weights(undisturbed.folder)["encoder"]
