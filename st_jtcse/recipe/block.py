"""What all blocks of a recipe have in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class Block(BaseModel):
    """Base of every block: unknown keys are refused and values are not coerced across types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def _foreign(self) -> tuple[str, ...]:
        """Name the keys that this kind of block may not give."""
        return ()

    @model_serializer(mode="wrap")
    def _loadable(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what could not be loaded again or says nothing: foreign keys, and nulls that are defaults."""
        data: dict[str, Any] = dump(self)
        fields = type(self).model_fields
        return {
            key: value
            for key, value in data.items()
            if key not in self._foreign() and (value is not None or fields[key].default is not None)
        }
