"""boto3's SNS client for an endpoint on this machine, without checks of its own."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config


def sns_client(url: str, *, region: str = "us-east-1", validate: bool = False) -> Any:
    """A client that tries once, so that each answer is seen as it is.

    With `validate` the client refuses by itself what its model forbids.
    """
    return boto3.client(
        "sns",
        endpoint_url=url,
        region_name=region,
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(
            parameter_validation=validate,
            retries={"total_max_attempts": 1},
            proxies={},
        ),
    )
