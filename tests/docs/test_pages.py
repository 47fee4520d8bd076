"""Every page of the documentation is followed as a reader would, and its links lead somewhere."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import pumphouse
from support.pages import ROOT, Page

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
AS_TYPED = {"README.md", "publishing.md"}
"""Pages whose every line goes through a shell and the console script; on the others the commands
that neither serve nor wait run in process, as `tests/cli` also runs each of them."""
_LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_a_page_works_as_it_is_written(path: Path, tmp_path: Path) -> None:
    with Page(path, tmp_path, in_process=path.name not in AS_TYPED) as page:
        page.run()


@pytest.mark.parametrize("path", [*PAGES, ROOT / "CHANGELOG.md"], ids=_name)
def test_links_lead_somewhere(path: Path) -> None:
    for target, anchor in _LINK.findall(_text(path)):
        other = path.parent / target if target else path
        assert other.exists(), f"{_name(path)} links to {target}, which is not there"
        if anchor and other.suffix == ".md":
            assert anchor in _anchors(other), f"{_name(path)} links to {target}#{anchor}"


def test_the_site_has_every_page_once_and_no_other() -> None:
    named = list(_pages_in(_site()["nav"]))
    there = [path.relative_to(DOCS).as_posix() for path in PAGES if path.is_relative_to(DOCS)]
    assert sorted(named) == sorted(there), "nav of mkdocs.yml, and the pages in docs/"


@pytest.mark.parametrize("path", [page for page in PAGES if page.is_relative_to(DOCS)], ids=_name)
def test_a_page_of_the_site_links_to_pages_of_the_site(path: Path) -> None:
    for target, _ in _LINK.findall(_text(path)):
        inside = (path.parent / target).resolve().is_relative_to(DOCS)
        assert inside, f"{_name(path)} links to {target}, which is not in the site"


def test_the_index_leads_to_every_page() -> None:
    index = (DOCS / "index.md").read_text()
    missing = [page for page in _pages_in(_site()["nav"]) if f"({page})" not in index]
    assert missing == ["index.md"]


def test_how_it_works_names_modules_that_are_there() -> None:
    named = re.findall(r"`([\w/]+(?:\.py|/))`", (DOCS / "how-it-works.md").read_text())
    source = ROOT / "src" / "pumphouse"
    missing = [name for name in named if not (source / name).exists()]
    assert len(named) > 30
    assert missing == ["src/pumphouse/"]  # where they are, as the page says


def test_the_reference_has_every_public_name() -> None:
    pages = "\n".join(path.read_text() for path in (DOCS / "reference").glob("*.md"))
    shown = set(re.findall(r"^::: (\S+)$", pages, flags=re.MULTILINE))
    missing = [
        name
        for name, module in pumphouse._WHERE.items()
        if not {f"pumphouse.{name}", f"pumphouse.{module}"} & shown
    ]
    assert not missing, "public names that no page of docs/reference/ shows"


def test_what_the_reference_shows_is_there() -> None:
    for path in (DOCS / "reference").glob("*.md"):
        for target in re.findall(r"^::: (\S+)$", path.read_text(), flags=re.MULTILINE):
            assert _found(target), f"{_name(path)} shows {target}, which is not there"


def _found(target: str) -> bool:
    try:
        pkgutil.resolve_name(target)
    except (ImportError, AttributeError):
        return False
    return True


def test_docstrings_are_markdown() -> None:
    """They become the reference; `::` and `====` tables are for another kind of it."""
    shown = [
        target
        for path in (DOCS / "reference").glob("*.md")
        for target in re.findall(r"^::: (\S+)$", path.read_text(), flags=re.MULTILINE)
    ]
    for target in shown:
        text = inspect.getdoc(pkgutil.resolve_name(target)) or ""
        assert not re.search(r"^\s*(::|={4,}.*)$|:(class|func|meth|param)\b", text, re.M), target


def _pages_in(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _pages_in(part)


def _site() -> dict[str, Any]:
    """mkdocs.yml, without the Python objects that it names."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    site: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)
    return site


def _text(path: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def _anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", path.read_text(), flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).strip().replace(" ", "-")
        for heading in headings
    }
