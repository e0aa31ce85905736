"""The Hub's check of a card's metadata: the rules on which model cards fail in practice, not all of
them.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

FRONT_MATTER = re.compile(r"^(---\r?\n)(.*?)\r?\n---(?:\r?\n|$)", re.DOTALL)
REPOSITORY_ID = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)?", re.ASCII)
# Fields of a result that must be given, by the block that holds them.
REQUIRED = {"task": ("type",), "dataset": ("type", "name")}


def card_metadata(content: str) -> dict[str, Any]:
    """The metadata of a card; empty where there is none or it is no mapping."""
    match = FRONT_MATTER.match(content)
    try:
        metadata = yaml.safe_load(match.group(2)) if match else None
    except yaml.YAMLError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


def card_faults(content: str) -> tuple[list[str], list[str]]:
    """Errors and warnings about a card's metadata."""
    match = FRONT_MATTER.match(content)
    if match is None:
        return [], ["empty or missing yaml metadata in repo card"]
    try:
        metadata = yaml.safe_load(match.group(2))
    except yaml.YAMLError as error:
        return [f"YAML Metadata Error: {error}"], []
    if metadata is None:
        return [], ["empty or missing yaml metadata in repo card"]
    if not isinstance(metadata, dict):
        return ["YAML Metadata Error: metadata must be a mapping"], []
    return [*_field_errors(metadata), *_index_errors(metadata)], []


def _field_errors(metadata: dict[str, Any]) -> Iterator[str]:
    for key in ("license", "library_name", "pipeline_tag"):
        if key in metadata and not isinstance(metadata[key], str):
            yield f'"{key}" must be a string'
    for key in ("tags", "datasets", "metrics"):
        values = metadata.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            yield f'"{key}" must be an array of strings'
    bases = metadata.get("base_model", [])
    for base in bases if isinstance(bases, list) else [bases]:
        if not isinstance(base, str) or not REPOSITORY_ID.fullmatch(base):
            yield (
                f'"base_model" with value "{base}" is not valid. Use a model id from '
                "https://hf.co/models."
            )


def _index_errors(metadata: dict[str, Any]) -> Iterator[str]:
    for i, model in enumerate(metadata.get("model-index") or []):
        if "name" not in model:
            yield f'"model-index[{i}].name" is required'
        for j, result in enumerate(model.get("results") or []):
            at = f"model-index[{i}].results[{j}]"
            for block, keys in REQUIRED.items():
                yield from (
                    f'"{at}.{block}.{key}" is required'
                    for key in keys
                    if key not in result.get(block, {})
                )
            for key in ("config", "split", "revision"):
                if not isinstance(result.get("dataset", {}).get(key, ""), str):
                    yield f'"{at}.dataset.{key}" must be a string'
            for k, metric in enumerate(result.get("metrics") or []):
                yield from (
                    f'"{at}.metrics[{k}].{key}" is required'
                    for key in ("type", "value")
                    if key not in metric
                )
