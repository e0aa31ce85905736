"""What options are read as, and how a value that is none is told."""

import pytest

from st_jtcse.cli.train import main


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("many", "expected texts=NUMBER among its parts, found 'many'"),
        ("nodes=4", "expected texts=NUMBER among its parts, found 'nodes=4'"),
        ("texts=many", "expected texts to be a whole number from 1 to 2,147,483,647, found 'many'"),
        ("texts=0", "expected texts to be a whole number from 1 to 2,147,483,647, found '0'"),
        ("texts=1.5", "expected texts to be a whole number from 1 to 2,147,483,647, found '1.5'"),
        ("texts=1e30", "expected texts to be a whole number from 1 to 2,147,483,647, found '1e30'"),
        ("texts=nan", "expected texts to be a whole number from 1 to 2,147,483,647, found 'nan'"),
        ("texts=9,nodes=-1", "expected nodes to be a whole number from 1 to 100,000, found '-1'"),
        ("texts=9,devices=1e6", "expected devices to be a whole number from 1 to 1,024, found '1e6'"),
        ("texts=9,train=0", "expected train to be a number a second above 0, 1e+18 at most, found '0'"),
        (
            "texts=9,bandwidth=inf",
            "expected bandwidth to be a number a second above 0, 1e+18 at most, found 'inf'",
        ),
        (
            "texts=9,trian=3",
            "expected one of texts, nodes, devices, train, encode, compare, translate, bandwidth, "
            "or a rate's.STAGE, found 'trian'",
        ),
        ("texts=9,texts=8", "expected each key once, found 'texts=9,texts=8'"),
    ],
)  # fmt: skip
def test_a_size_that_is_none_is_told_in_a_line(value, told, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["quickstart", "--dry-run", f"--simulate={value}"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f": argument --simulate: {told}\n")
