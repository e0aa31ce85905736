"""Classes of modules that take seconds to import, as their source says them: names, bases,
signatures, fields. None of their code runs; who has to know more imports them.
"""

from __future__ import annotations

import ast
import dataclasses
import gc
import inspect
import sys
import types
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import cache, cached_property, partial, wraps
from importlib import import_module
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any

# Compiled for the most part, so there is no source to read; none of it can be given in a recipe.
_COMPILED = "torch"
_Bindings = dict[str, ast.stmt | None]
_Fields = dict[str, tuple[Callable[[], dataclasses.Field[Any]], str]]


class Unread(Exception):
    """A source does not tell what is asked; who imports the module knows."""


@contextmanager
def reading() -> Iterator[None]:
    """Let :func:`module` read what is not imported yet; what cannot be read raises Unread."""
    token, collects = _reader.set(_Reader()), gc.isenabled()
    # A source is so many objects that a search for garbage among them takes longer than they do.
    gc.disable()
    try:
        yield
    finally:
        _reader.reset(token)
        if collects:
            gc.enable()


def must_import() -> None:
    """Raise Unread while modules are read: what follows has to import them."""
    if _reader.get() is not None:
        raise Unread("it has to be imported")


def current() -> object | None:
    """Return what stands for the modules as they are read now; None where they are imported."""
    return _reader.get()


def module(name: str) -> Any:
    """Return a module, or what stands for it while it is read; either has its names."""
    reader = _reader.get()
    if reader is None:
        return import_module(name)
    return reader.module(name)


def classes_of(module: Any) -> dict[str, type]:
    """Return the classes that a module defines."""
    if isinstance(module, _Module):
        return module._source.classes()
    own = {name: value for name, value in vars(module).items() if inspect.isclass(value)}
    return {name: value for name, value in own.items() if value.__module__ == module.__name__}


def fields_of(owner: type) -> _Fields:
    """Return the fields that a dataclass is made with: what looks one up, and the module that
    wrote it.
    """
    own = {}
    if not hasattr(owner, "_written"):
        own = {field.name: field for field in dataclasses.fields(owner) if field.init}
    found: _Fields = {}
    for base in reversed(owner.__mro__):
        if "_written" in vars(base):
            found |= vars(base)["_written"].fields()
            continue
        for name in inspect.get_annotations(base):
            if name in own:
                found[name] = (partial(own.__getitem__, name), base.__module__)
    return found


def names_in(annotation: Any, module: str) -> Mapping[str, Any]:
    """Return the values of the names in an annotation that a module wrote, as text or not."""
    reader = _reader.get()
    if reader is None or module in reader.imported or not isinstance(annotation, str):
        return vars(sys.modules[module])
    return reader.source(module).known_in(ast.parse(annotation, mode="eval"))


class _Reader:
    """The modules that are read, and those that were imported before: what is imported meanwhile
    does not count, so that no class is met in two forms.
    """

    def __init__(self) -> None:
        self.imported = frozenset(sys.modules)
        self.source = cache(self._read)
        self.compiled = cache(self._stand_in)

    def module(self, name: str) -> Any:
        if name in self.imported:
            return sys.modules[name]
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names:
            return import_module(name)
        if top == _COMPILED:
            return self.compiled(name)
        return _Module(self.source(name))

    def _read(self, name: str) -> _Source:
        return _Source(self, name, _file_of(name))

    def _stand_in(self, name: str) -> _Compiled:
        return _Compiled(name.rpartition(".")[2], (), {"_reader": self, "_path": name})

    def exported(self, owner: str, name: str) -> Any:
        """Return what another module gets that imports a name from this one."""
        found = self.module(owner)
        if isinstance(found, types.ModuleType):
            if name in vars(found):
                return vars(found)[name]
            return self.source(owner).exported(name)
        return getattr(found, name)


_reader: ContextVar[_Reader | None] = ContextVar("reader", default=None)


class _Compiled(ABCMeta):
    """Stands for a module, class or function of a compiled package; has any name.

    Of this metaclass, so that classes may have abstract bases beside compiled ones.
    """

    _reader: _Reader
    _path: str

    def __getattr__(cls, name: str) -> _Compiled:
        # What is derived of it has what its source says.
        if name.startswith("__") or "_path" not in vars(cls):
            raise AttributeError(name)
        return cls._reader.compiled(f"{cls._path}.{name}")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "_path" in vars(cls) and not cls.__name__[:1].isupper():
            raise Unread(f"{cls._path} is a function")
        return super().__call__()


class _Module:
    """Stands for a module: its names are what its source says."""

    def __init__(self, source: _Source) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return self._source.exported(name)


class _Source:
    """A module's source; its names are looked up when they are asked for."""

    def __init__(self, reader: _Reader, name: str, file: Path) -> None:
        self.reader, self.name = reader, name
        self.package = name if file.stem == "__init__" else name.rpartition(".")[0]
        self._bound: _Bindings = {}
        self._for_types: _Bindings = {}
        for statement in _parsed(file):
            if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
                self._for_types |= _bindings(statement.body)
            else:
                self._bound |= _bindings([statement])
        self._values: dict[str, Any] = {}

    def exported(self, name: str) -> Any:
        """Return what another module gets that imports a name from this one."""
        if name in self._bound:
            return self.value(name)
        # Where names are found when they are asked for, type checkers are told what they are.
        if name in self._for_types:
            return self._value_of(name, self._for_types[name])
        if self.package == self.name:
            return self.reader.module(f"{self.name}.{name}")
        raise Unread(f"{self.name} has no {name}")

    def value(self, name: str) -> Any:
        """Return what a name that the module binds stands for in it."""
        if name not in self._values:
            self._values[name] = self._value_of(name, self._bound[name])
        return self._values[name]

    def classes(self) -> dict[str, type]:
        """Return the classes that the module defines."""
        defined = [name for name, by in self._bound.items() if isinstance(by, ast.ClassDef)]
        return {name: self.value(name) for name in defined}

    def known_in(self, tree: ast.AST, scope: _Bindings | None = None) -> dict[str, Any]:
        """Return the values of the names in an expression, those that have one."""
        found = {}
        for name in _names_in(tree):
            if scope and name in scope:
                found[name] = self._value_of(name, scope[name], scope)
            elif name in self._bound:
                found[name] = self.value(name)
        return found

    def evaluated(self, node: ast.expr, scope: _Bindings | None = None) -> Any:
        """Return the value of an expression."""
        statement = ast.Assign([ast.Name("value", ast.Store())], node)
        return self.made("value", ast.fix_missing_locations(statement), scope)

    def made(self, name: str, by: ast.stmt, scope: _Bindings | None = None) -> Any:
        """Return what a name stands for after a statement that binds it."""
        names = {"__name__": self.name, **self.known_in(by, scope)}
        try:  # Annotations stay text, as in this file.
            exec(compile(ast.Module([by], []), self.name, "exec"), names)
        except Exception as error:  # As many as there are statements.
            raise Unread(f"{self.name}: {ast.unparse(by)[:60]}") from error
        return names[name]

    def _value_of(self, name: str, by: ast.stmt | None, scope: _Bindings | None = None) -> Any:
        if isinstance(by, ast.ImportFrom):
            owner = resolve_name("." * by.level + (by.module or ""), self.package)
            original = next(one.name for one in by.names if name == (one.asname or one.name))
            return self.reader.exported(owner, original)
        if isinstance(by, ast.Import):
            one = next(one for one in by.names if name == (one.asname or one.name.split(".")[0]))
            return self.reader.module(one.name if one.asname else name)
        if isinstance(by, ast.ClassDef):
            return _Written(self, by).stand_in()
        if isinstance(by, ast.AnnAssign) and by.value is not None:
            return self.evaluated(by.value, scope)
        if isinstance(by, ast.Assign):
            return self.made(name, by, scope)
        if isinstance(by, ast.FunctionDef):
            return _never_run(self.made(name, by, scope))
        raise Unread(f"{self.name}: {name} is not written once and for all")


class _Written:
    """A class as its source says it."""

    def __init__(self, source: _Source, node: ast.ClassDef) -> None:
        self.source, self._node = source, node
        self._body = _bindings(node.body)
        self._decorators = [ast.unparse(each) for each in node.decorator_list]

    def stand_in(self) -> type:
        """Return a class of the same name and bases, whose attributes are read when they are asked
        for and whose methods do nothing.
        """
        if self._node.keywords:
            raise Unread(f"{self._node.name} is made by a metaclass")
        bases = tuple(self.source.evaluated(base) for base in self._node.bases)
        if any(isinstance(base, type) and issubclass(base, Enum) for base in bases):
            return self._enumeration()
        try:
            return types.new_class(self._node.name, bases, {}, self._fill)
        except TypeError as error:  # No such bases go together as they are read.
            raise Unread(f"{self.source.name}.{self._node.name}: {error}") from error

    def fields(self) -> _Fields:
        """Return the fields that it adds as a dataclass."""
        if not any("dataclass" in decorator for decorator in self._decorators):
            return {}
        found: _Fields = {}
        for node in self._node.body:
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            is_set = not ast.unparse(node.annotation).startswith(("ClassVar", "typing.ClassVar"))
            if is_set and not (node.value and "init=False" in ast.unparse(node.value)):
                found[node.target.id] = (partial(self._field, node), self.source.name)
        return found

    def _field(self, node: ast.AnnAssign) -> dataclasses.Field[Any]:
        value = self.source.evaluated(node.value, self._body) if node.value else dataclasses.field()
        if not isinstance(value, dataclasses.Field):
            value = dataclasses.field(default=value)
        value.type = ast.unparse(node.annotation)
        return value

    def _enumeration(self) -> Any:
        if None in self._body.values():
            raise Unread(f"{self._node.name} is not written once and for all")
        body = self._node.body
        members: list[ast.stmt] = [each for each in body if isinstance(each, ast.Assign)]
        node = ast.ClassDef(self._node.name, self._node.bases, [], members or [ast.Pass()], [])
        return self.source.made(node.name, ast.fix_missing_locations(node))

    def _fill(self, namespace: dict[str, Any]) -> None:
        namespace |= {"__module__": self.source.name, "_written": self}
        if self._decorators:
            namespace["__init__"] = _Attribute(self.source, None, self._body)
        for name, by in self._body.items():
            namespace[name] = _Attribute(self.source, by, self._body)


class _Attribute:
    """An attribute of a class, read when it is asked for."""

    def __init__(self, source: _Source, by: ast.stmt | None, scope: _Bindings) -> None:
        self._source, self._by, self._scope = source, by, scope

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if isinstance(self._by, ast.AnnAssign) and self._by.value is None:
            raise AttributeError(self._name)
        if instance is not None and self._name == "__init__":
            # An instance can be made, as defaults are, and is as good as any other object.
            return lambda *args, **kwargs: None
        return self._value

    @cached_property
    def _value(self) -> Any:
        return self._source._value_of(self._name, self._by, self._scope)


def _never_run(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the same signature that has no body to run."""

    @wraps(function)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        raise Unread(f"{function.__module__}.{function.__name__} would have to run")

    return stand_in


def _file_of(name: str) -> Path:
    """Return the source of a module; nothing of its package is imported."""
    top, *below = name.split(".")
    spec = find_spec(top)
    for folder in spec.submodule_search_locations or () if spec else ():
        place = Path(folder, *below)
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                return file
    raise Unread(f"{name} has no source")


def _parsed(file: Path) -> list[ast.stmt]:
    """Return a file's statements, of functions the signatures alone: bodies are most of a source,
    and nobody asks for them.
    """
    body = ast.parse(file.read_text(encoding="utf-8")).body
    for statement in body:
        inside = statement.body if isinstance(statement, ast.ClassDef) else []
        for each in (statement, *inside):
            if isinstance(each, ast.FunctionDef):
                each.body, each.returns = [ast.Pass(lineno=1, col_offset=0)], None
                each.decorator_list.clear()
    return body


def _bindings(body: Sequence[ast.stmt]) -> _Bindings:
    """Return by name the statements that bind it; None where a condition or a loop does."""
    found: _Bindings = {}
    for statement in body:
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
            found[statement.name] = statement
            continue
        is_plain = isinstance(statement, (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign))
        for name in _bound_in(statement):
            found[name] = statement if is_plain else None
    return found


def _bound_in(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.split(".")[0]
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name


def _names_in(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a piece of source needs to run; what lambdas and annotations need it
    does not.
    """
    if isinstance(tree, ast.Name) and isinstance(tree.ctx, ast.Load):
        yield tree.id
    elif not isinstance(tree, (ast.Lambda, ast.arg)):
        for node in ast.iter_child_nodes(tree):
            yield from _names_in(node)
