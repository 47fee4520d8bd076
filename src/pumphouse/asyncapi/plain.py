"""Words without what tells where a service runs: ARNs, account ids, queue URLs, credentials.

A document is shown to people who are not to know that. What is documented are names.
"""

from __future__ import annotations

import re
from typing import Any

_ARN = re.compile(r"arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:\d*:([^\s\"'<>`,;]+)")
_QUEUE_URL = re.compile(r"https?://[^\s\"'<>`]*?/\d{12}/([A-Za-z0-9_-]+(?:\.fifo)?)")
_USER = re.compile(r"(https?://)[^\s/@]+@")
_ACCESS_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")
_ACCOUNT_ID = re.compile(r"(?<![\w.])\d{12}(?![\w.]?\d)(?!\w)")


def plain(text: str) -> str:
    """A text with names in the place of ARNs and queue URLs, and without the rest."""
    text = _ARN.sub(r"\1", text)
    text = _QUEUE_URL.sub(r"\1", text)
    text = _USER.sub(r"\1", text)
    text = _ACCESS_KEY.sub("…", text)
    return _ACCOUNT_ID.sub("…", text)


def plain_values(value: Any) -> Any:
    """A JSON value with every text in it made plain."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list | tuple):
        return [plain_values(each) for each in value]
    if isinstance(value, dict):
        return {key: plain_values(each) for key, each in value.items()}
    return value
