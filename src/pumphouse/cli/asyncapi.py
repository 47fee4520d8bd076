"""`pumphouse asyncapi service:app`: its AsyncAPI document, to standard output or a file.

What is in it is `pumphouse.asyncapi`'s. No request is made.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pumphouse.asyncapi import document, dumps
from pumphouse.asyncapi.writing import Format
from pumphouse.cli.exit_codes import FAILED, OK
from pumphouse.cli.run.loading import load_or_show
from pumphouse.errors import UsageError


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line said."""

    target: str
    format: str | None = None
    output: str | None = None
    title: str | None = None
    version: str = "0.1.0"
    description: str | None = None
    endpoint_url: str | None = None
    region: str | None = None


def run(options: Options) -> int:
    """Write the document. Raises `UsageError` where there is no such app, for a format that isn't
    one, for YAML without PyYAML, and where standard output is closed."""
    chosen = _format(options)
    to_output = options.output is None or options.output == "-"
    if to_output and sys.stdout is None:
        raise UsageError("standard output is closed, and the document is written there")
    app = load_or_show(options.target)
    if app is None:
        return FAILED
    text = dumps(
        document(
            app,
            title=options.title,
            version=options.version,
            description=options.description,
            region=options.region,
            endpoint_url=options.endpoint_url,
        ),
        chosen,
    )
    if to_output:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # as a file has it, whatever the locale
        sys.stdout.write(text)
    else:
        _write(Path(str(options.output)), text)
    return OK


def _format(options: Options) -> Format:
    """What was asked for, or what the file's name says."""
    said = options.format
    if said is None:
        said = "yaml" if (options.output or "").endswith((".yaml", ".yml")) else "json"
    if said == "json":
        return "json"
    if said == "yaml":
        return "yaml"
    raise UsageError(f"--format is json or yaml, not {said!r}")


def _write(path: Path, text: str) -> None:
    """All of it or nothing: whoever reads the file never sees a part. What is no file, a pipe or
    `/dev/stdout`, is written to as it is."""
    path = path.resolve()  # behind a link is what was meant
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}-")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
