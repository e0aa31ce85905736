"""Recipe files are read as YAML 1.2 data, and every misfit is told in a sentence with its line."""

import math
from pathlib import Path

import pytest

from st_jtcse.errors import UserError
from st_jtcse.recipe import yaml_source
from st_jtcse.recipe.yaml_source import Written, WrittenTree, dump, grown, load, parse_value


def write(tmp_path, text):
    path = tmp_path / "r.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(tmp_path, text):
    with pytest.raises(UserError) as caught:
        load(write(tmp_path, text), "r.yaml")
    return list(caught.value.faults)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1.3e-6", 1.3e-6),
        (".5", 0.5),
        ("2.", 2.0),
        ("-.inf", -math.inf),
        ("+3", 3),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("no", "no"),
        ("on", "on"),
        ("y", "y"),
        ("2024-01-31", "2024-01-31"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("'1e-5'", "1e-5"),
        ("!!str 5", "5"),
        ("a=b", "a=b"),
        ("=", "="),
        ("stage:one", "stage:one"),
        ("[fr, no]", ["fr", "no"]),
        ("{a: 1e3}", {"a": 1000.0}),
        ("{<<: 1}", {"<<": 1}),
    ],
)
def test_scalars_follow_yaml_1_2(text, value):
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


def test_nan_is_a_number():
    assert math.isnan(parse_value(".nan"))


def test_lines_are_those_of_keys_and_items(tmp_path):
    source = load(
        write(
            tmp_path,
            "# head\nname: x\nstages:\n  - name: a\n    args:\n      k: [1,\n        2]\n  - name: "
            "b\n",
        )
    )
    assert source.data == {
        "name": "x",
        "stages": [{"name": "a", "args": {"k": [1, 2]}}, {"name": "b"}],
    }
    assert source.at(("name",)).line == 2
    assert source.at(("stages", 0)).line == 4
    assert source.at(("stages", 0, "args", "k")).line == 6
    assert source.at(("stages", 0, "args", "k", 1)).line == 7
    assert source.at(("stages", 1, "name")).line == 8


def test_an_absent_key_has_the_line_of_its_nearest_ancestor(tmp_path):
    source = load(write(tmp_path, "\nname: x\nargs:\n  k: 1\n"))
    assert source.at(("args", "other", "deep")).line == 3
    assert source.at(("output_dir",)).line == 2


def test_places_read_like_sentences(tmp_path):
    source = load(write(tmp_path, "data:\n  train: a.txt\nstages:\n  - 1\n"), "r.yaml")
    assert source.place(("stages", 0, "args")) == "r.yaml:4 stages[0].args"
    assert source.place(()) == "r.yaml:1"
    # One source stands for a list of one: the position the schema adds is not what the user wrote.
    assert source.place(("data", "train", 0, "file")) == "r.yaml:2 data.train.file"


def test_overridden_places_name_the_option():
    file, option = Written("r.yaml", 1, Path()), Written("--set args.k", None, Path())
    source = WrittenTree({"args": WrittenTree({"k": grown({"l": 1}, option)}, file)}, file)
    assert source.place(("args", "k")) == "--set args.k"
    assert source.place(("args", "k", "l")) == "--set args.k args.k.l"
    assert source.at(("args", "k", "l")).line is None
    assert source.at(("args",)).line == 1


def test_a_byte_order_mark_and_crlf_are_read(tmp_path):
    assert load(write(tmp_path, b"\xef\xbb\xbfname: x\r\nseed: 1\r\n")).data == {
        "name": "x",
        "seed": 1,
    }


def test_duplicate_keys_are_refused_all_at_once(tmp_path):
    assert refused(tmp_path, "seed: 1\nargs:\n  k: 1\n  k: 2\nseed: 2\n") == [
        "r.yaml:4 args.k: expected each key once, found it again (first on line 3). Remove one.",
        "r.yaml:5 seed: expected each key once, found it again (first on line 1). Remove one.",
    ]


def test_anchors_and_aliases_are_refused(tmp_path):
    assert refused(tmp_path, "a: &x [1]\nb: *x\n") == [
        "r.yaml:1: expected plain values, found the anchor '&x'. Remove it.",
        "r.yaml:2: expected plain values, found the alias '*x'. Repeat the value.",
    ]


def test_an_expansion_bomb_is_refused_unexpanded(tmp_path):
    lines = ["a0: &a0 [x, x]"] + [
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 60)
    ]
    assert "anchor '&a0'" in refused(tmp_path, "\n".join(lines))[0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a:\n  1: x\n", "r.yaml:2 a: expected text as a key, found 1. Write '1' in quotes."),
        ("true: x\n", "r.yaml:1: expected text as a key, found true. Write 'true' in quotes."),
        (
            "? [a]\n: x\n",
            "r.yaml:1: expected text as a key, found a list or mapping. Write a plain key.",
        ),
        (
            "a: !!python/name:os.system x\n",
            "r.yaml:1 a: expected plain values, found the tag '!!python/name:os.system'. Remove "
            "the tag.",
        ),
        (
            "a: !x {b: 1}\n",
            "r.yaml:1 a: expected plain values, found the tag '!x'. Remove the tag.",
        ),
        ("a: !!int x\n", "r.yaml:1 a: expected a YAML int, found 'x'. Correct the value."),
        (
            "a: 1\n---\nb: 2\n",
            "r.yaml:2: expected one YAML document, found a second. Remove it from '---' on.",
        ),
        (
            "- a\n",
            "r.yaml:1: expected a mapping ('name: ...', 'stages: ...') at the top level, found a "
            "list. "
            "Write keys with a colon.",
        ),
        (
            "\njust text\n",
            "r.yaml:2: expected a mapping ('name: ...', 'stages: ...') at the top level, found a "
            "single value. "
            "Write keys with a colon.",
        ),
        (
            "a: 1\nb: c: d\n",
            "r.yaml:2: expected valid YAML, but mapping values are not allowed here. "
            "Correct the indentation, or quote the text.",
        ),
        (
            "a:\n\tb: 1\n",
            "r.yaml:2: expected valid YAML, but found character '\\t' that cannot start any token. "
            "Correct the indentation, or quote the text.",
        ),
        (
            "a: 1\nb: \x07\n",
            "r.yaml:2: expected valid YAML, but the character U+0007 is not allowed. "
            "Correct the indentation, or quote the text.",
        ),
    ],
)
def test_each_misfit_has_its_sentence(tmp_path, text, sentence):
    assert refused(tmp_path, text) == [sentence]


@pytest.mark.parametrize("text", ['"\\ud83d\\ude00"', '"\\U0001f600"', "\U0001f600"])
def test_a_character_may_be_written_as_json_does(text):
    assert parse_value(text) == "\U0001f600"
    assert parse_value(f"{{{text}: 1}}") == {"\U0001f600": 1}


@pytest.mark.parametrize("text", ['"\\ud83d"', '{"\\ude00": 1}', '["a\\ud83d b"]'])
def test_half_a_character_is_refused(text):
    with pytest.raises(UserError, match="expected whole characters, found the escape of half of"):
        parse_value(text)


@pytest.mark.parametrize(
    "text", ["a\x85b", "\u2028", "a \u2029", "\ufeffa", "a\n b\n", "\t", "\x07"]
)
def test_text_of_any_characters_is_read_as_it_was_written(tmp_path, text):
    path = tmp_path / "r.yaml"
    path.write_text(dump({text: [text]}), encoding="utf-8")
    assert load(path).data == {text: [text]}


def test_an_impossible_escape_is_refused(tmp_path):
    (sentence,) = refused(tmp_path, 'a: "\\U00110000"\n')
    assert sentence.startswith("r.yaml:1: expected valid YAML, but an escape is not a character")


def test_a_number_too_long_for_python_is_refused(tmp_path):
    assert refused(tmp_path, f"a: {'9' * 5000}\n") == [
        f"r.yaml:1 a: expected a YAML int, found '{'9' * 40}...'. Correct the value."
    ]


def test_deep_nesting_is_refused_before_recursion(tmp_path):
    assert refused(tmp_path, "a: " + "[" * 5000 + "]" * 5000) == [
        "r.yaml:1: expected at most 32 levels, found more. Flatten the value."
    ]


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "~\n"])
def test_an_empty_file_is_refused(tmp_path, text):
    assert refused(tmp_path, text) == [
        "r.yaml: expected a recipe, found an empty file. Start from a bundled one: st-train --list."
    ]


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError) as caught:
        load(tmp_path / "r.yaml")
    assert (
        str(caught.value)
        == f"{tmp_path}/r.yaml: expected a recipe file, found none. Correct the path."
    )


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(UserError) as caught:
        load(tmp_path)
    assert (
        str(caught.value)
        == f"{tmp_path}: expected a recipe file, found a folder. Name a file in it."
    )


def test_text_in_another_encoding_is_refused_by_line(tmp_path):
    assert refused(tmp_path, b"name: x\ndescription: caf\xe9\n") == [
        "r.yaml:2: expected UTF-8 text, found the byte 0xe9. Save it as UTF-8."
    ]


@pytest.mark.parametrize("raw", [b"\x80\x02\x00\x00binary", "name: x\n".encode("utf-16")])
def test_binary_files_are_refused(tmp_path, raw):
    assert refused(tmp_path, raw) == [
        "r.yaml: expected UTF-8 text, found binary data or UTF-16. Name a YAML file, or save as "
        "UTF-8."
    ]


def test_a_file_too_large_for_a_recipe_is_refused(tmp_path):
    assert refused(tmp_path, b"#" * (yaml_source.MAX_BYTES + 1)) == [
        "r.yaml: expected a recipe of at most 1048576 bytes, found more. Name a recipe file."
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "a: b: c",
            "--set k: expected valid YAML, but mapping values are not allowed here. Quote the "
            "text.",
        ),
        ("*x", "--set k: expected plain values, found the alias '*x'. Repeat the value."),
    ],
)
def test_a_value_that_is_not_yaml_names_its_option(text, sentence):
    with pytest.raises(UserError) as caught:
        parse_value(text, "--set k")
    assert str(caught.value) == sentence


def test_a_dump_is_read_back_unchanged(tmp_path):
    data = {
        "numbers": [1e-5, 1.0, -3, 1e22, math.inf, 0.1],
        "texts": [
            "1e-5",
            "no",
            "yes",
            "0o7",
            "null",
            "",
            "2024-01-31",
            "é ü\n",
            "a: b",
            "&x",
            " x ",
            "12:30",
            ".5",
            "=",
        ],
        "others": [True, None, {"no": {}}, []],
    }
    assert load(write(tmp_path, yaml_source.dump(data))).data == data


def test_a_dump_repeats_shared_values():
    shared = [1]
    assert "&" not in yaml_source.dump({"a": shared, "b": shared})
