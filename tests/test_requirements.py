"""What pyproject.toml asks for is what was tried: no lower bound is beneath a version that the
tests ran with.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def versions(file):
    lines = (
        line for line in (ROOT / file).read_text(encoding="utf-8").splitlines() if "==" in line
    )
    return {name.lower(): version for name, _, version in (line.partition("==") for line in lines)}


def bounds(requirements):
    found = (
        re.match(r"([\w-]+)(?:\[\w+\])?[>=]=([\d.]+)", requirement) for requirement in requirements
    )
    return {match[1].lower(): match[2] for match in found if match}


def test_lower_bounds_are_versions_that_were_tried():
    extras = [
        requirement for extra in PROJECT["optional-dependencies"].values() for requirement in extra
    ]
    for requirements, file in (
        (PROJECT["dependencies"], "constraints-lowest.txt"),
        (extras, "constraints.txt"),
    ):
        tried = versions(file)
        for name, version in bounds(requirements).items():
            assert re.fullmatch(rf"{re.escape(version)}(\.0)*", tried[name]), (
                f"{name}>={version}, tried {tried[name]}"
            )
    assert (
        len(bounds(PROJECT["dependencies"]))
        == len(PROJECT["dependencies"])
        == len(versions("constraints-lowest.txt"))
    )
