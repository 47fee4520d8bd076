"""Large bodies."""

from __future__ import annotations


class ClaimCheck:
    """Large bodies."""
