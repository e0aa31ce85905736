"""Registers the towers with transformers without importing it: when it has been imported, now or
later.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

LIBRARY = "transformers"


def register_towers() -> None:
    """Import the towers, which register themselves, right after transformers; at once if it is
    imported already.
    """
    if LIBRARY in sys.modules:
        import st_jtcse.towers  # noqa: F401
    else:
        sys.meta_path.insert(0, _Wait())


class _Wait:
    """Finds transformers where the finders behind this one do, and has its loader import the towers
    at the end.

    Of all its modules the package itself comes first, so none of them is half imported then. Many
    libraries only ask whether transformers is there, without loading it: so the finder goes when it
    has been loaded, and not before.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != LIBRARY:
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next(
            (spec for finder in behind if (spec := finder.find_spec(name, path, target))), None
        )
        if spec is not None and spec.loader is not None:
            loader = spec.loader
            load = loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                del vars(loader)["exec_module"]
                load(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                # A statement, and no name taken from it: the towers' own first line may be what
                # imports transformers, and then they register when they are done.
                import st_jtcse.towers  # noqa: F401

            # On the instance, which stays what others expect of a loader, and for this one load.
            vars(loader)["exec_module"] = load_and_register
        return spec
