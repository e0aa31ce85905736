"""Abilities are rooms: the engine names none of them, their order is whole, and one file adds one."""

import ast
import re
from pathlib import Path

import pytest
from processes import run_code

from st_jtcse.recipe.ability import BLOCKS, abilities

ROOT = Path(__file__).parents[1]
ENGINE = [
    path for room in ("recipe", "training") for path in (ROOT / "st_jtcse" / room).glob("*.py")
]
KEYS = {key for ability in abilities() for key in ability.fields}
# Which keys of a block go together is one table.
TABLE = ROOT / "st_jtcse" / "recipe" / "extends.py"


def words_of(tree):
    """The names of a file, and its texts that are one word."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("path", ENGINE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_engine_names_no_ability(path):
    assert {"teachers", "views", "augment", "lora", "streaming", "unlabelled"} <= KEYS
    found = set(words_of(ast.parse(path.read_text()))) & KEYS
    assert not found or path == TABLE, found


def test_every_ability_has_a_block_and_follows_known_ones():
    known = {type(ability).__name__ for ability in abilities()}
    for place, ability in enumerate(abilities()):
        earlier = {type(other).__name__ for other in abilities()[:place]}
        assert ability.block in BLOCKS and set(ability.after) <= earlier, ability
        assert set(ability.before) <= known - earlier, ability
        for _, field in ability.fields.values():
            assert field.description


def test_a_file_among_the_abilities_adds_one(tmp_path):
    page = (ROOT / "docs" / "own-ability.md").read_text()
    code = re.findall(r"<!-- file: word_limits.py -->\n```\w+\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "word_limits.py").write_text(*code)
    found = run_code(
        """
import sys
import st_jtcse.abilities
st_jtcse.abilities.__path__.append(sys.argv[1])
from st_jtcse.recipe.schema import StageSpec
limits = StageSpec.model_fields["word_limits"]
print(limits.description)
""",
        str(tmp_path),
        folder=tmp_path,
    )
    assert found == "Leave out sentences with too few or too many words.\n"
