"""What the site needs beyond the pages as they are in the repository; mkdocs loads it (`hooks`).

Markers of code blocks (`python title=service.py`, `console server`) are for the test that runs the
pages, so they are taken off. And the build fails on a page that would fetch anything from another
host: the site is whole by itself.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

_log = logging.getLogger("mkdocs.hooks.site")
_FENCE = re.compile(r"^( *```)(\w+)[ \t]+([^\n`{]+)$", re.MULTILINE)
_TITLE = re.compile(r"\btitle=(\S+)")
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc=[\"']?(?:https?:)?//[^>]*>"
    r"|<link\b(?![^>]*\brel=[\"']?(?:canonical|prev|next))[^>]*?\bhref=[\"']?(?:https?:)?//[^>]*>",
    re.IGNORECASE,
)


def without_markers(markdown: str) -> str:
    """A page whose fences say only what a renderer knows: the language and a title."""

    def plain(fence: re.Match[str]) -> str:
        title = _TITLE.search(fence[3])
        return f'{fence[1]}{fence[2]} title="{title[1]}"' if title else f"{fence[1]}{fence[2]}"

    return _FENCE.sub(plain, markdown)


def fetched(html: str) -> list[str]:
    """The elements of a page that a browser would fetch from another host."""
    return [match[0] for match in _FETCHED.finditer(html)]


def on_page_markdown(markdown: str, **_: Any) -> str:
    return without_markers(markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Look at the pages as they were written, with what every plugin has added."""
    for path in sorted(Path(config.site_dir).rglob("*.html")):
        for element in fetched(path.read_text()):  # a warning ends a strict build
            _log.warning("%s fetches from another host: %s", path.name, element)
