"""The runner of pages sees what is wrong with a page; without that, the docs test passes idly."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from support.pages import Page, PageError, commands, matches, own_arguments


def follow(tmp_path: Path, text: str, *, in_process: bool = False) -> None:
    path = tmp_path / "page.md"
    path.write_text(textwrap.dedent(text))
    folder = tmp_path / "folder"
    folder.mkdir()
    with Page(path, folder, in_process=in_process) as page:
        page.run()


def test_python_blocks_share_a_namespace_and_may_await(tmp_path: Path) -> None:
    follow(
        tmp_path,
        """
        ```python
        import asyncio
        from dataclasses import dataclass

        @dataclass
        class Thing:
            size: "int"
        ```

        ```python
        await asyncio.sleep(0)
        assert Thing(3).size == 3
        ```

        ```python
        async def main():
            return 3

        assert asyncio.run(main()) == 3
        ```
        """,
    )


def test_a_failing_python_block_is_named_by_page_and_line(tmp_path: Path) -> None:
    with pytest.raises(PageError, match=r"page\.md:2: ZeroDivisionError"):
        follow(
            tmp_path,
            """
            ```python
            1 / 0
            ```
            """,
        )


def test_console_lines_run_and_their_output_must_match(tmp_path: Path) -> None:
    follow(
        tmp_path,
        """
        ```console
        $ echo one \\
        >   two
        one two
        $ pumphouse --version
        pumphouse ...
        ```

        ```console exit=3
        $ exit 3
        ```
        """,
    )


@pytest.mark.parametrize(
    "block",
    [
        "```console\n$ echo one\ntwo\n```",
        "```console\n$ exit 1\n```",
        "```console\necho one\n```",
        "```console exit=2\n$ true\n```",
        "```console sevrer\n$ true\n```",
        "```console checkout\n$ make no-such-target\n```",
        "```console checkout\n$ python -m pip install 'pumphouse[nothing]'\n```",
        "```console checkout\n$ rm -rf /\n```",
        "```console server\n$ exit 4\n```",
        "```bash\necho unseen\n```",
        "```\nno language\n```",
        "```json\n{'a': 1}\n```",
        "```python\nimport os; os.no_such_name\n```",
        "```python elsewhere\nimport json\n```",
        "```python elsewhere\nimport no_such_library; (\n```",
        "```yaml\na: [\n```",
    ],
)
def test_what_does_not_hold_fails(tmp_path: Path, block: str) -> None:
    with pytest.raises(PageError, match=r"page\.md:1: "):
        follow(tmp_path, block)


def test_a_titled_block_is_a_file_for_the_console(tmp_path: Path) -> None:
    follow(
        tmp_path,
        """
        ```python title=service.py
        print("a service")
        ```

        ```console
        $ python service.py
        a service
        ```
        """,
    )


def test_a_file_can_be_written_anew_and_any_block_can_be_one(tmp_path: Path) -> None:
    follow(
        tmp_path,
        """
        ```python title=a_service.py
        size = 1
        ```

        ```python
        import a_service
        assert a_service.size == 1
        ```

        ```python title=a_service.py
        size = 1_000
        ```

        ```python
        import a_service
        assert a_service.size == 1_000
        ```

        ```toml title=settings.toml
        size = 3
        ```

        ```console
        $ cat settings.toml
        size = 3
        ```
        """,
    )
    assert "a_service" not in sys.modules


def test_code_of_a_library_that_is_not_here_is_only_read(tmp_path: Path) -> None:
    follow(tmp_path, "```python elsewhere\nimport no_such_library\nno_such_library.run()\n```")


def test_a_server_runs_until_the_page_ends(tmp_path: Path) -> None:
    follow(
        tmp_path,
        """
        ```console server
        $ python -u -c "import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); \\
        >   print('ready'); signal.pause()"
        ready
        ```

        ```console
        $ echo after
        after
        ```
        """,
    )


def test_a_server_that_ends_badly_fails_its_page(tmp_path: Path) -> None:
    with pytest.raises(PageError, match="ended with 7 after SIGTERM"):
        follow(
            tmp_path,
            """
            ```console server
            $ python -u -c "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); \\
            >   print('ready'); signal.pause()"
            ready
            ```
            """,
        )


SERVICE = """
```python title=service.py
import os
from pumphouse import App

app = App("one")

@app.subscriber("orders")
async def handle(body: dict) -> None: ...

print("NO_COLOR", os.environ.get("NO_COLOR"))
```

```python
import service
service.app.name = "changed"
```

```console
$ pumphouse asyncapi service:app
NO_COLOR 1
...
    "title": "one",
...
```

```console exit=2
$ pumphouse asyncapi service:missing
NO_COLOR 1
...service:missing is nothing...
```

```python
import sys
assert service is sys.modules["service"] and service.app.name == "changed"
```
"""


@pytest.mark.parametrize("in_process", [True, False], ids=["in process", "as typed"])
def test_a_command_in_process_is_one_as_it_is_typed(tmp_path: Path, in_process: bool) -> None:
    follow(tmp_path, SERVICE, in_process=in_process)


def test_what_a_command_in_process_shows_and_ends_with_must_match(tmp_path: Path) -> None:
    for number, block in enumerate(
        ["\n$ pumphouse queues --no-such", "\n$ pumphouse send --help\nno"]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(PageError, match=r"page\.md:1: "):
            follow(folder, f"```console{block}\n```", in_process=True)


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("pumphouse peek orders --where 'a b'", ["peek", "orders", "--where", "a b"]),
        ("pumphouse peek orders | head -1", []),
        ("pumphouse run service:app", []),
        ("pumphouse", []),
        ("echo peek", []),
    ],
)
def test_only_a_command_alone_runs_in_process(line: str, arguments: list[str]) -> None:
    assert own_arguments(line) == arguments


def test_ellipses_stand_for_anything() -> None:
    assert matches(["a ... c", "...", "z"], "a b c\nx\ny\nz\n")
    assert matches(["..."], "")
    assert matches(["a", "..."], "a\nb\n")
    assert not matches(["a", "c"], "a\nb\nc\n")
    assert not matches([], "something\n")


def test_commands_keep_their_output() -> None:
    first, second = commands("$ one\nout\n\nmore\n$ two\n")
    assert (first.line, first.shown) == ("one", ["out", "", "more"])
    assert (second.line, second.shown) == ("two", [])
