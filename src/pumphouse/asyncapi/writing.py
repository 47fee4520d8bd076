"""A document as text: JSON, or YAML where PyYAML is installed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from pumphouse.errors import UsageError

Format = Literal["json", "yaml"]

_LINE_BREAK = re.compile("[\x85\u2028\u2029]")


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

    class Dumper(yaml.SafeDumper):
        """Quotes texts with a line break of Unicode's, which would be read as a space."""

        def represent_text(self, text: str) -> Any:
            style = '"' if _LINE_BREAK.search(text) else None
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, Dumper.represent_text)
    # read from the text, no part of it is in two places, which YAML would write as a reference
    written: str = yaml.dump(
        json.loads(text),
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
        default_flow_style=False,
    )
    return written
