"""`pumphouse asyncapi`: the document to standard output or a file, as JSON or YAML."""

from __future__ import annotations

import io
import json
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from pumphouse import cli

Command = Callable[..., tuple[int, str, str]]

SERVICE = '''
    from dataclasses import dataclass
    from pumphouse import App

    @dataclass
    class Order:
        id: int

    app = App("shop")

    @app.subscriber("orders")
    async def pack(order: Order) -> None:
        """Packs it."""

    out = App("out")
    out.publisher("shipped", Order)
'''


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Run the command in a folder with a service: exit code, standard output, standard error."""
    (tmp_path / "described.py").write_text(textwrap.dedent(SERVICE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def command(*arguments: str) -> tuple[int, str, str]:
        code = cli.run_command(["asyncapi", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def test_json_on_standard_output(command: Command) -> None:
    code, out, err = command("described:app")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["info"] == {"title": "shop", "version": "0.1.0"}
    assert document["operations"]["receive-orders"]["description"] == "Packs it."
    assert command("described:app")[1] == out


def test_yaml(command: Command) -> None:
    _, out, _ = command("described", "--format", "yaml")
    assert out.startswith("asyncapi: 3.0.0\n")
    assert yaml.safe_load(out) == json.loads(command("described")[1])


@pytest.mark.parametrize("name", ["a.yaml", "a.yml", "a.json", "a.txt"])
def test_a_file_says_what_it_holds(command: Command, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("something else")
    assert command("described", "--output", name) == (0, "", "")
    text = (tmp_path / name).read_text()
    assert text.startswith("asyncapi:" if "y" in name else "{")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
    if sys.platform != "win32":
        mask = os.umask(0)
        os.umask(mask)
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o666 & ~mask


def test_what_can_be_said_about_it(command: Command) -> None:
    _, out, _ = command(
        "described",
        *("--title", "The shop", "--version", "2.0.0", "--description", "Packs orders."),
        *("--region", "eu-west-1"),
    )
    document = json.loads(out)
    assert document["info"] == {
        "title": "The shop",
        "version": "2.0.0",
        "description": "Packs orders.",
    }
    assert document["servers"]["sqs"]["host"] == "sqs.eu-west-1.amazonaws.com"


def test_an_endpoint(command: Command) -> None:
    _, out, _ = command("described", "--endpoint-url", "http://127.0.0.1:9324")
    assert json.loads(out)["servers"]["sqs"]["host"] == "127.0.0.1:9324"


def test_an_app_that_only_publishes(command: Command) -> None:
    code, out, _ = command("described:out")
    assert code == 0
    assert list(json.loads(out)["operations"]) == ["send-shipped"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["no_such_module"],
        ["described:nothing"],
        ["described", "--format", "xml"],
        ["described", "--title", " "],
        ["described", "--endpoint-url", "nowhere"],
        [],
    ],
)
def test_wrong_usage(command: Command, arguments: list[str]) -> None:
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


def test_yaml_without_its_library(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    code, _, err = command("described", "-f", "yaml")
    assert code == 2
    assert "pumphouse[yaml]" in err


def test_a_folder_that_is_not_there(command: Command) -> None:
    code, out, err = command("described", "-o", "nowhere/a.json")
    assert (code, out) == (1, "")
    assert err.endswith("nowhere/a.json\n")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files")
def test_what_is_no_file_and_what_is_behind_a_link(command: Command, tmp_path: Path) -> None:
    assert command("described", "-o", os.devnull) == (0, "", "")
    assert Path(os.devnull).is_char_device()
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    assert command("described", "-o", "link.json") == (0, "", "")
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["asyncapi"] == "3.0.0"


def test_the_document_is_utf_8_in_any_locale(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "yaml"):
        written = io.BytesIO()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
        code, _, _ = command("described:app", "--format", name, "--title", "Größe")
        assert code == 0
        assert yaml.safe_load(written.getvalue().decode())["info"]["title"] == "Größe"


def test_a_folder_is_no_file(command: Command, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    code, out, err = command("described", "-o", "folder")
    assert (code, out) == (1, "")
    assert "folder" in err


@pytest.mark.parametrize("subcommand", ["asyncapi", "check"])
def test_a_service_that_raises_shows_its_own_traceback(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    subcommand: str,
) -> None:
    (tmp_path / "broken_service.py").write_text("import json\n\njson.loads('no')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cli.run_command([subcommand, "broken_service:app"]) == 1
    out, errors = capsys.readouterr()
    assert out == ""
    assert errors.endswith("pumphouse: broken_service:app can't be loaded\n")
    assert 'broken_service.py", line 3' in errors
    assert "click" not in errors
