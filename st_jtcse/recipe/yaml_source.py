"""Reads recipe YAML as data only: YAML 1.2 scalars, no duplicate keys, no aliases, every line
remembered.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from st_jtcse.errors import UserError
from st_jtcse.wording import dotted

Loc = tuple[str | int, ...]

# A recipe is a page or two; a weights file named by mistake is refused unread.
MAX_BYTES = 1 << 20
# Far above any recipe, far below Python's recursion limit, which PyYAML's composer would hit.
MAX_DEPTH = 32

_TAG = "tag:yaml.org,2002:"
_STR, _SEQ, _MAP = f"{_TAG}str", f"{_TAG}seq", f"{_TAG}map"


# The core schema of YAML 1.2. PyYAML follows 1.1, where 1e-5 is text, `no` is false and 010 is
# eight.
_SCALARS: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    f"{_TAG}null": (re.compile(r"^(?:~|null|Null|NULL|)$"), lambda text: None),
    f"{_TAG}bool": (
        re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"),
        lambda text: text[0] in "tT",
    ),
    f"{_TAG}int": (
        re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"),
        lambda text: int(text, 0) if text[:2] in ("0x", "0o") else int(text),
    ),
    f"{_TAG}float": (
        re.compile(
            r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
        lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
    ),
    _STR: (re.compile(r"^.*$", re.DOTALL), str),
}


class _Loader(yaml.SafeLoader):
    """PyYAML's parser under our scalar rules; only its node tree is used, never its
    constructors.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own name


class _Dumper(yaml.SafeDumper):
    """Writes text in quotes wherever YAML 1.1 or 1.2 would read something else, and never
    an alias.
    """

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text_node(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # PyYAML reads each of these as a line break, and a broken line as a space.
    style = '"' if re.search("[\x85\u2028\u2029]", text) else None
    return dumper.represent_scalar(_STR, text, style)


_Dumper.add_representer(str, _text_node)
for _tag, (_pattern, _) in _SCALARS.items():
    if _tag != _STR:
        # Whatever character the scalar starts with.
        _Loader.add_implicit_resolver(_tag, _pattern, None)
        _Dumper.add_implicit_resolver(_tag, _pattern, None)


class Written(NamedTuple):
    """Where a value was written: on a line of a file, or on the command line."""

    # How messages call the file; of the command line the option, e.g. ``--set seed``.
    name: str
    line: int | None  # Counted from 1; None on the command line
    folder: Path  # Where relative files in the value start


@dataclass(frozen=True)
class WrittenTree:
    """A value of a recipe that knows where it was written; mappings and lists hold such values."""

    value: Any
    written: Written
    # Whether it was written there itself, not as a part of what is above it.
    own: bool = True

    @cached_property
    def data(self) -> Any:
        """The value as plain data."""
        if isinstance(self.value, dict):
            return {key: item.data for key, item in self.value.items()}
        if isinstance(self.value, list):
            return [item.data for item in self.value]
        return self.value

    @property
    def name(self) -> str:
        """How messages call the file."""
        return self.written.name

    @property
    def keys(self) -> dict[str, WrittenTree]:
        """What the value holds as a mapping; nothing if it is none."""
        if isinstance(self.value, dict):
            return self.value
        return {}

    def plain(self, key: str) -> Any:
        """Return the value of a key; None if there is no such key."""
        if key in self.keys:
            return self.keys[key].value
        return None

    def having(self, **items: WrittenTree) -> WrittenTree:
        """Return the mapping with other values of some keys."""
        return replace(self, value={**self.keys, **items})

    def without(self, dropped: Collection[str]) -> WrittenTree:
        """Return the mapping without some of its keys."""
        return replace(
            self, value={key: item for key, item in self.keys.items() if key not in dropped}
        )

    def _walk(self, loc: Loc) -> tuple[Loc, WrittenTree, bool]:
        """Follow `loc` without list positions that exist only because one item stands for a list of
        one.

        Returns it, the last value on it that there is, and whether that is at its end.
        """
        spelt: list[str | int] = []
        last: WrittenTree = self
        node: WrittenTree | None = self
        for part in loc:
            held: Any = node.value if node else None
            if isinstance(part, int) and not isinstance(held, list):
                continue
            spelt.append(part)
            held = dict(enumerate(held)) if isinstance(held, list) else held
            node = held.get(part) if isinstance(held, dict) else None
            last = node or last
        return tuple(spelt), last, node is not None

    def at(self, loc: Loc) -> Written:
        """Return where `loc` was written, or the nearest above it that there is."""
        return self._walk(loc)[1].written

    def place(self, loc: Loc) -> str:
        """Return the start of a message about `loc`, e.g. ``recipe.yaml:9 stages[1].data``."""
        spelt, last, is_there = self._walk(loc)
        name, line, _ = last.written
        if line is None and last.own and is_there:
            return name
        return f"{name if line is None else f'{name}:{line}'} {dotted(spelt)}".rstrip()


def grown(data: Any, written: Written, own: bool = True) -> WrittenTree:
    """Return plain data that was written as a whole."""
    if isinstance(data, dict):
        return WrittenTree(
            {key: grown(item, written, own=False) for key, item in data.items()}, written, own
        )
    if isinstance(data, list):
        return WrittenTree([grown(item, written, own=False) for item in data], written, own)
    return WrittenTree(data, written, own)


def load(path: Path, name: str | None = None) -> WrittenTree:
    """Read a recipe file that messages call by a name, by default its path; raises UserError if it
    is none.
    """
    name = str(path) if name is None else name
    source = _Tree(name, Path(os.path.abspath(path)).parent).read(_text(path, name))
    if source.value is None:
        raise UserError(
            f"{name}: expected a recipe, found an empty file. Start from a bundled one: st-train "
            "--list."
        )
    if not isinstance(source.value, dict):
        raise UserError(
            f"{source.place(())}: expected a mapping ('name: ...', 'stages: ...') at the top "
            f"level, found {'a list' if isinstance(source.value, list) else 'a single value'}. "
            "Write keys with a colon."
        )
    return source


def parse_value(text: str, name: str = "value") -> Any:
    """Read a value by the rules of recipe files: ``1e-5`` as a number, ``no`` as text; raises
    UserError for no YAML.
    """
    return _Tree(name, Path(), numbered=False).read(text).data


def dump(data: Mapping[str, Any]) -> str:
    """Write plain data as YAML that `load` reads back unchanged."""
    text: str = yaml.dump(
        dict(data),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
        default_flow_style=False,
    )
    return text


def _text(path: Path, name: str) -> str:
    # Unlike pathlib, os.path answers no for a name too long; opening it then says why.
    if os.path.isdir(path):
        raise UserError(f"{name}: expected a recipe file, found a folder. Name a file in it.")
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UserError(f"{name}: expected a recipe file, found none. Correct the path.") from None
    except OSError as error:
        raise UserError(
            f"{name}: expected a readable file, found: {error.strerror}. Check the path."
        ) from error
    if b"\0" in raw:
        raise UserError(
            f"{name}: expected UTF-8 text, found binary data or UTF-16. Name a YAML file, or save "
            "as UTF-8."
        )
    if len(raw) > MAX_BYTES:
        raise UserError(
            f"{name}: expected a recipe of at most {MAX_BYTES} bytes, found more. Name a recipe "
            "file."
        )
    try:
        return raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(
            f"{name}:{line}: expected UTF-8 text, found the byte "
            f"0x{error.object[error.start]:02x}. Save it as UTF-8."
        ) from None


@dataclass
class _Tree:
    """Builds a tree from YAML text and collects faults on the way."""

    name: str
    folder: Path
    numbered: bool = True
    faults: list[tuple[int, str]] = field(default_factory=list)

    def read(self, text: str) -> WrittenTree:
        source = self._source(None, 1)
        try:
            self._scan(text)
            self._stop_at_faults()
            node = yaml.compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._refuse((mark.line if mark else 0) + 1, error.problem or "")
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            self._refuse(line, f"the character U+{int(error.character):04X} is not allowed")
        except (ValueError, OverflowError) as error:
            # PyYAML lets chr() fail on escapes beyond Unicode, such as "\U00110000".
            self._refuse(1, f"an escape is not a character ({error})")
        else:
            source = source if node is None else self._value(node, ())
        self._stop_at_faults()
        return source

    def _source(self, value: Any, line: int) -> WrittenTree:
        return WrittenTree(value, Written(self.name, line, self.folder))

    def _refuse(self, line: int, problem: str) -> None:
        way = "Correct the indentation, or quote the text." if self.numbered else "Quote the text."
        self._fault(line, (), f"expected valid YAML, but {problem or 'the text is not'}. {way}")

    def _fault(self, line: int, loc: Loc, text: str) -> None:
        place = f"{self.name}:{line}" if self.numbered else self.name
        self.faults.append((line, f"{f'{place} {dotted(loc)}'.rstrip()}: {text}"))

    def _stop_at_faults(self) -> None:
        if self.faults:
            raise UserError(*(text for _, text in sorted(self.faults)))

    def _scan(self, text: str) -> None:
        """Refuse from the event stream what must never reach the recursive composer."""
        depth = documents = 0
        for event in yaml.parse(text, Loader=_Loader):
            line = event.start_mark.line + 1 if event.start_mark else 1
            fault = ""
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents == 2:
                    fault = "one YAML document, found a second. Remove it from '---' on."
            elif isinstance(event, yaml.AliasEvent):
                fault = f"plain values, found the alias '*{event.anchor}'. Repeat the value."
            elif isinstance(event, yaml.NodeEvent) and event.anchor is not None:
                fault = f"plain values, found the anchor '&{event.anchor}'. Remove it."
            if fault:
                self._fault(line, (), f"expected {fault}")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MAX_DEPTH:
                told = f"expected at most {MAX_DEPTH} levels, found more. Flatten the value."
                self._fault(line, (), told)
                # PyYAML's scanner looks at every open level again and again: it would take hours.
                return

    def _value(self, node: yaml.Node, loc: Loc, line_of_key: int | None = None) -> WrittenTree:
        line = node.start_mark.line + 1
        value: Any = None
        if isinstance(node, yaml.MappingNode) and node.tag == _MAP:
            value = self._mapping(node, loc)
        elif isinstance(node, yaml.SequenceNode) and node.tag == _SEQ:
            value = [self._value(item, (*loc, index)) for index, item in enumerate(node.value)]
        elif isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
            value = self._scalar(node, loc)
        else:
            tag = node.tag.replace(_TAG, "!!")
            self._fault(line, loc, f"expected plain values, found the tag '{tag}'. Remove the tag.")
        return self._source(value, line_of_key or line)

    def _whole(self, node: yaml.ScalarNode, loc: Loc) -> str:
        """Return a scalar's text, in which JSON writes a character beyond U+FFFF as two escapes."""
        text: str = node.value
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            fault = "expected whole characters, found the escape of half of one. Correct the text."
            self._fault(node.start_mark.line + 1, loc, fault)
            return ""

    def _scalar(self, node: yaml.ScalarNode, loc: Loc) -> Any:
        pattern, value = _SCALARS[node.tag]
        text = self._whole(node, loc)
        try:
            if pattern.match(text):
                return value(text)
        except ValueError:
            # An integer of thousands of digits, which int() refuses: told like any other misfit.
            pass
        tag = node.tag.replace(_TAG, "")
        shown = f"{text[:40]}..." if len(text) > 40 else text
        self._fault(
            node.start_mark.line + 1,
            loc,
            f"expected a YAML {tag}, found '{shown}'. Correct the value.",
        )
        return None

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, WrittenTree]:
        data: dict[str, WrittenTree] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(
                    line, loc, "expected text as a key, found a list or mapping. Write a plain key."
                )
                continue
            key = self._whole(key_node, loc)
            below = (*loc, key)
            if key_node.tag != _STR:
                text = f"expected text as a key, found {key or 'nothing'}. Write '{key}' in quotes."
                self._fault(line, loc, text)
            elif key in data:
                first = data[key].written.line
                text = (
                    f"expected each key once, found it again (first on line {first}). Remove one."
                )
                self._fault(line, below, text)
            else:
                data[key] = self._value(value_node, below, line)
        return data
