"""Every page of the documentation is followed as a reader would, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.pages import ROOT, Page

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_a_page_works_as_it_is_written(path: Path, tmp_path: Path) -> None:
    with Page(path, tmp_path) as page:
        page.run()


@pytest.mark.parametrize("path", [*PAGES, ROOT / "CHANGELOG.md"], ids=_name)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target, anchor in _LINK.findall(text):
        other = path.parent / target if target else path
        assert other.exists(), f"{_name(path)} links to {target}, which is not there"
        if anchor and other.suffix == ".md":
            assert anchor in _anchors(other), f"{_name(path)} links to {target}#{anchor}"


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    missing = [
        _name(path)
        for path in PAGES
        if path.is_relative_to(ROOT / "docs")
        and path.name != "index.md"
        and f"({path.relative_to(ROOT / 'docs')})" not in index
    ]
    assert not missing, "docs/index.md does not link to these"


def _anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", path.read_text(), flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).strip().replace(" ", "-")
        for heading in headings
    }
