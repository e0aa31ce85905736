"""Data that an evaluation needs and cannot have here."""

from __future__ import annotations


class DataUnavailable(Exception):
    """A set is neither on this machine nor reachable; the other tasks of a run go on without it."""
