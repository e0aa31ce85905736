"""docs/reliability.md tells what the tables hold."""

import json

import pytest

from faults.page import COUNTED, PAGE, TESTS, render
from faults.promises import PROMISES


def test_the_page_is_made_of_the_tables():
    assert PAGE.read_text(encoding="utf-8") == render(
        json.loads(COUNTED.read_text(encoding="utf-8"))
    ), "run PYTHONPATH=.:tests python -m faults.page"


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.fault)
def test_each_promise_has_its_test(promise):
    file, _, function = promise.test.partition("::")
    assert f"def {function}(" in (TESTS / file).read_text(encoding="utf-8")


def test_each_test_of_a_fault_keeps_a_promise():
    kept = {promise.test for promise in PROMISES}
    for path in TESTS.joinpath("faults").glob("test_*.py"):
        if path.name != "test_page.py":
            lines = path.read_text(encoding="utf-8").splitlines()
            functions = [
                line[len("def ") :].partition("(")[0]
                for line in lines
                if line.startswith("def test_")
            ]
            assert {f"faults/{path.name}::{function}" for function in functions} <= kept
