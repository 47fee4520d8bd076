"""An empty AWS configuration for a test: no files, no variables, no instance metadata."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def aws_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where `config` and `credentials` would lie; nothing else is configured."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "aws"
    folder.mkdir()
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return folder
