"""A small stand-in for the Hugging Face Hub on loopback: models, commits, collections, and faults
to order.

It speaks what huggingface_hub 2.4 asks for when models are pushed and loaded, so that tests use the
real client:

    with HubStandIn() as hub:
        api = HfApi(endpoint=hub.endpoint, token=hub.write_token)
        api.create_repo("org/model")
        hub.fail("POST", "/api/models/*/commit/*", status=503)
        hub.cut("PUT", "/upload/*", after_bytes=100_000)
        api.upload_folder(repo_id="org/model", folder_path=folder)
        hub.repositories["org/model"].commits[-1].added
        hub.count("PUT", "/upload/*")
        subprocess.run([...], env=hub.environment(tmp_path))

Large files take the LFS way, uploads and downloads on a second port, as the Hub keeps them on other
hosts. The client prefers Xet for uploads, which the stand-in does not speak: HF_HUB_DISABLE_XET=1,
which `environment` and the `hub` fixture set.
"""

from hub_stand_in.hub import HubStandIn

__all__ = ["HubStandIn"]
