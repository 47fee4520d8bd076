"""What is done to the pages for the site: markers go, and nothing is fetched from elsewhere."""

from __future__ import annotations

import importlib.util

import pytest

from support.pages import ROOT

_SPEC = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
assert _SPEC is not None
assert _SPEC.loader is not None
hooks = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(hooks)


@pytest.mark.parametrize(
    ("fence", "plain"),
    [
        ("```python", "```python"),
        ("```python title=service.py", '```python title="service.py"'),
        ("```python aws title=loop.py", '```python title="loop.py"'),
        ("```console server aws", "```console"),
        ("```console exit=2", "```console"),
    ],
)
def test_markers_are_for_the_tests(fence: str, plain: str) -> None:
    assert hooks.without_markers(f"{fence}\n$ x\n```\n") == f"{plain}\n$ x\n```\n"


@pytest.mark.parametrize(
    "element",
    [
        '<script src="https://example.com/a.js"></script>',
        "<script async src=//example.com/a.js></script>",
        '<link rel="stylesheet" href="https://example.com/a.css">',
        '<img alt="" src="http://example.com/a.png">',
    ],
)
def test_what_a_browser_would_fetch_from_elsewhere_is_found(element: str) -> None:
    assert hooks.fetched(f"<p>{element}</p>")


@pytest.mark.parametrize(
    "element",
    [
        '<script src="assets/a.js"></script>',
        '<a href="https://example.com">x</a>',
        '<link rel="canonical" href="https://example.com/">',
        '<img src="../a.png">',
    ],
)
def test_the_sites_own_and_links_are_fine(element: str) -> None:
    assert not hooks.fetched(f"<p>{element}</p>")
