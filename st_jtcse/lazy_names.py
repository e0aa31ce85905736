"""Names of a package whose modules are imported only where one of their names is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``.

    Args:
        package: Its name.
        homes: Each of its names, with the module of the package that has it.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{homes[name]}"), name)
        # Kept, in place of a module of the same name, which the import has just put there.
        setattr(sys.modules[package], name, found)
        return found

    return find
