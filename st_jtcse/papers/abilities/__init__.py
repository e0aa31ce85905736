"""Abilities of stages: round trips and judged pairs."""
