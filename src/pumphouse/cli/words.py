"""Words of the output that depend on a number."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 request`, `2,000 requests`: for nouns that take an s."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"
