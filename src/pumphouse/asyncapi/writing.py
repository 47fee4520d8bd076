"""A document as text: JSON, or YAML where PyYAML is installed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pumphouse.errors import UsageError

Format = Literal["json", "yaml"]


def dumps(document: Mapping[str, Any], format: Format = "json") -> str:  # noqa: A002
    """The text, in the document's own order, with a newline at its end.

    Raises `UsageError` for YAML without PyYAML, which `pumphouse[yaml]` brings.
    """
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if format == "json":
        return text + "\n"
    if format != "yaml":
        raise UsageError(f"the format is json or yaml, not {format!r}")
    try:
        import yaml
    except ImportError:
        raise UsageError(
            "YAML needs PyYAML: install pumphouse[yaml], or write JSON, which YAML readers read"
        ) from None
    # read from the text, no part of it is in two places, which YAML would write as a reference
    written: str = yaml.safe_dump(
        json.loads(text), sort_keys=False, allow_unicode=True, width=100, default_flow_style=False
    )
    return written
