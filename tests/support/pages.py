"""Runs the code blocks of a Markdown page, in order, as a reader would who follows it.

What each kind of block means is written in CONTRIBUTING.md, "The documentation". In short: `python`
blocks share one namespace and may await at the top level; each `$ ` line of a `console` block runs
in the page's folder and its shown output must match; a word after the language says where that is
different. A block that can't be run in any of these ways is an error, so that none is skipped
without a word.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import time
import tomllib
import types
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from pumphouse.cli import run_command
from support.logs import kept_logging

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_PORT = "9324"
LIMIT_SECONDS = 180  # a bound for what hangs; a loaded machine may take its time
STOP_SECONDS = 60
IN_PROCESS = {"asyncapi", "check", "peek", "purge", "queues", "receive", "redrive", "send"}
MARKERS = {"aws", "checkout", "elsewhere", "exit", "server", "title"}

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_ELLIPSIS = "..."


class PageError(AssertionError):
    """A block did not do what the page says."""


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the words after it, its text and its line in the page."""

    language: str
    options: dict[str, str]
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """One `$ ` line and the output that the page shows for it."""

    line: str
    shown: list[str] = field(default_factory=list)


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for match in _FENCE.finditer(page):
        language, *words = shlex.split(match["info"]) or [""]
        options = dict(word.partition("=")[::2] for word in words)
        line = page.count("\n", 0, match.start()) + 1
        yield Block(language, options, textwrap.dedent(match["text"]), line)


def commands(text: str) -> list[Command]:
    """The `$ ` lines of a console block; a backslash at the end goes on in the next line."""
    found: list[Command] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command = command[:-1] + next(lines, "").removeprefix("> ").lstrip()
            found.append(Command(command))
        elif not found:
            raise PageError(f"a console block begins with `$ `, not with {line!r}")
        else:
            found[-1].shown.append(line.rstrip())
    return found


def matches(shown: list[str], output: str) -> bool:
    """Whether output is what a page shows: `...` stands for any text, alone for any lines."""
    while shown and not shown[-1]:
        shown = shown[:-1]
    pattern = "".join(
        r"(?:.*\n)*?"
        if line.strip() == _ELLIPSIS
        else ".*".join(re.escape(part) for part in line.split(_ELLIPSIS)) + r"[ \t]*\n"
        for line in shown
    )
    return re.fullmatch(pattern, output.rstrip() + "\n" if output.strip() else "") is not None


class Page:
    """A page that is being run; a context manager, since servers and a loop may outlive a block."""

    def __init__(
        self, path: Path, folder: Path, *, commands: Path | None = None, in_process: bool = False
    ) -> None:
        """`commands` is the folder of `python` and `pumphouse`: this interpreter's by default.

        `in_process` runs a line that is nothing but a `pumphouse` of `IN_PROCESS` in this process:
        the same function as the console script's, without the second that it takes to start.
        """
        self.path = path
        self.commands = commands or Path(sys.executable).parent
        self.in_process = in_process
        self.folder = folder
        self.port = _free_port()
        text = path.read_text()
        if any("server" in block.options for block in blocks(text)):
            text = text.replace(DEFAULT_PORT, self.port)
        self.blocks = list(blocks(text))
        self._module = types.ModuleType(f"page_{path.stem.replace('-', '_')}")
        self._resources = ExitStack()
        self._servers: list[subprocess.Popen[bytes]] = []
        self._runner: asyncio.Runner

    def __enter__(self) -> Page:
        sys.modules[self._module.__name__] = self._module
        self._resources.callback(sys.modules.pop, self._module.__name__, None)
        self._resources.enter_context(_folder(self.folder))
        self._resources.enter_context(kept_logging())
        self._runner = self._resources.enter_context(asyncio.Runner())
        return self

    def __exit__(self, *exception: object) -> None:
        # one after the other, and only then waited for: a served account that ends answers the
        # polls that another one waits for
        for process in reversed(self._servers):
            process.terminate()
        self._resources.close()

    def run(self) -> None:
        """Run every block; `PageError` with the page's name and line for one that fails."""
        for block in self.blocks:
            try:
                with _limit(LIMIT_SECONDS), self._aws() if "aws" in block.options else ExitStack():
                    self._run(block)
            except Exception as error:
                raise PageError(
                    f"{self.path.name}:{block.line}: {type(error).__name__}: {error}"
                ) from error

    def _run(self, block: Block) -> None:
        if unknown := set(block.options) - MARKERS:
            raise PageError(f"no such marker: {', '.join(unknown)}")
        if title := block.options.get("title"):
            (self.folder / title).write_text(block.text)
            sys.modules.pop(Path(title).stem, None)  # it may be a newer one of that name
            importlib.invalidate_caches()
        match block.language:
            case "python" if "elsewhere" in block.options:
                _check_elsewhere(block.text)
            case "python":
                self._python(block)
            case "console":
                self._console(block)
            case "json":
                json.loads(block.text)
            case "yaml":
                list(yaml.safe_load_all(block.text))
            case "toml":
                tomllib.loads(block.text)
            case "text" | "ini" | "dockerfile":
                pass
            case other:
                raise PageError(
                    "a block is python, console, json, toml, yaml, ini, dockerfile or text, "
                    f"not {other!r}"
                )

    def _python(self, block: Block) -> None:
        code = compile(
            "\n" * block.line + block.text,
            str(self.path),
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,
        )
        result = eval(code, self._module.__dict__)
        if code.co_flags & inspect.CO_COROUTINE:
            self._runner.run(result)

    def _console(self, block: Block) -> None:
        for command in commands(block.text):
            if "checkout" in block.options:
                _check_in_checkout(command.line)
            elif "server" in block.options:
                self._serve(command)
            else:
                self._command(command, int(block.options.get("exit", "0")))

    def _command(self, command: Command, code: int) -> None:
        arguments = own_arguments(command.line) if self.in_process else []
        if arguments:
            ended, output = self._called(arguments)
        else:
            done = subprocess.run(
                ["bash", "-c", command.line],
                cwd=self.folder,
                env=_environment(self.commands),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LIMIT_SECONDS,
                check=False,
            )
            ended, output = done.returncode, done.stdout
        if ended != code:
            raise PageError(f"`{command.line}` ended with {ended}:\n{output}")
        if any(command.shown) and not matches(command.shown, output):
            shown = "\n".join(command.shown)
            raise PageError(f"`{command.line}` shows\n{shown}\nand printed\n{output}")

    def _called(self, arguments: list[str]) -> tuple[int, str]:
        """What `pumphouse` with these arguments ends with and prints, as in a process of its own:
        in the reader's environment, with the page's modules read anew from their files."""
        output = io.StringIO()
        with ExitStack() as stack:
            stack.enter_context(_environ(_environment(self.commands)))
            stack.enter_context(kept_logging())
            stack.enter_context(_without_modules_of(self.folder))
            nothing = stack.enter_context(open(os.devnull))
            stack.callback(setattr, sys, "stdin", sys.stdin)
            sys.stdin = nothing
            stack.enter_context(redirect_stdout(output))
            stack.enter_context(redirect_stderr(output))
            return run_command(arguments), output.getvalue()

    def _serve(self, command: Command) -> None:
        """Start what keeps running, wait until it is there, and stop it when the page ends."""
        line = command.line
        serves = line.startswith("pumphouse serve")
        if serves and "--port" not in line:
            line += f" --port {self.port}"
        if not serves and not any(command.shown):
            raise PageError(f"`{line}` shows no output by which it could be seen to have started")
        output = self.folder / f".output-{len(list(self.folder.glob('.output-*')))}"
        with output.open("wb") as stream:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=self.folder,
                env=_environment(self.commands),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        self._resources.callback(_see_stopped, process, line, output)
        self._servers.append(process)

        def there() -> bool:
            if serves and not _healthy(self.port):
                return False
            return not any(command.shown) or matches(
                [*command.shown, _ELLIPSIS], output.read_text()
            )

        while not there():
            if process.poll() is not None:
                raise PageError(f"`{line}` ended with {process.returncode}:\n{output.read_text()}")
            time.sleep(0.05)

    @contextmanager
    def _aws(self) -> Iterator[None]:
        """What a page asks of AWS is asked of a served account."""
        if not _healthy(self.port):
            self._serve(Command("pumphouse serve"))
        served = {
            "AWS_ENDPOINT_URL_SQS": f"http://127.0.0.1:{self.port}",
            "AWS_ENDPOINT_URL_SNS": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "example",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        with _environ({**os.environ, **served}):
            yield


def own_arguments(line: str) -> list[str]:
    """The arguments of a line that is `pumphouse` alone, one that may run in process; or none."""
    if set(line) & set("|&;<>$`*?(){}\\"):  # it takes a shell
        return []
    words = shlex.split(line, comments=True)
    return words[1:] if words[:1] == ["pumphouse"] and IN_PROCESS & set(words[1:2]) else []


def _check_elsewhere(text: str) -> None:
    """Code for another library, which is not run here: it parses, and that library is missing.

    The pages for people who move over show what they come from. What can be run is run, so a block
    that imports only what is installed is no such block.
    """
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
    }
    if all(importlib.util.find_spec(name) for name in imported if name):
        raise PageError("all that this block imports is installed, so it can be run")


def _check_in_checkout(line: str) -> None:
    """A command for a checkout, which is not run here: does what it names exist?"""
    words = shlex.split(line)
    if words[0] == "make":
        dry = subprocess.run(
            ["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if dry.returncode:
            raise PageError(f"`{line}`: {dry.stderr}")
    elif words[:3] == ["python3", "-m", "venv"] or words[0] in (".", "cd", "mkdir"):
        pass  # what every shell does
    elif words[:4] == ["python", "-m", "pip", "install"]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for extra in re.findall(r"[\w-]+", "".join(re.findall(r"\[(.*?)\]", line))):
            if extra not in project["optional-dependencies"]:
                raise PageError(f"`{line}`: there is no extra {extra!r}")
    elif words[0].startswith("tests/") or words[0] in ("pytest", ".venv/bin/python"):
        for path in words[1:]:
            if path.startswith(("tests/", "bench/")) and not (ROOT / path).exists():
                raise PageError(f"`{line}`: there is no {path}")
    else:
        raise PageError(f"`{line}`: only make, pip, pytest and .venv/bin/python are known here")


def _environment(commands: Path) -> dict[str, str]:
    """The reader's machine: `pumphouse` on the path, and no way to a real AWS account."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        **kept,
        "PATH": f"{commands}{os.pathsep}{os.environ.get('PATH', '')}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",  # what is printed comes in order, as on a terminal
    }


def _healthy(port: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _see_stopped(process: subprocess.Popen[bytes], line: str, output: Path) -> None:
    try:
        code = process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise PageError(f"`{line}` did not stop within {STOP_SECONDS} s of SIGTERM") from None
    if code:
        raise PageError(f"`{line}` ended with {code} after SIGTERM:\n{output.read_text()}")


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@contextmanager
def _folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        os.chdir(before)
        _forget_modules_of(folder)  # the next page may have a service.py too


def _forget_modules_of(folder: Path) -> dict[str, types.ModuleType]:
    """Take out of `sys.modules`, and return, what was imported from a folder."""
    own = {
        name: module
        for name, module in sys.modules.items()
        if str(getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}")
    }
    for name in own:
        del sys.modules[name]
    return own


@contextmanager
def _without_modules_of(folder: Path) -> Iterator[None]:
    before, path = _forget_modules_of(folder), sys.path[:]
    try:
        yield
    finally:
        sys.path[:] = path
        _forget_modules_of(folder)
        sys.modules.update(before)


@contextmanager
def _environ(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(variables)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    """`TimeoutError` in the main thread when the body takes longer, whatever it is doing."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
