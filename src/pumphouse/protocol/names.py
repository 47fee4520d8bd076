"""Names of queues and topics: what may be one, and how URLs and ARNs carry them.

Both are known by region, account id and name (`QueueName`, `TopicName`). A queue URL is an opaque
parameter to AWS; what is read out of one here is a convenience: the name, the account, and the
region where its host tells it.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import urlsplit

FIFO_SUFFIX = ".fifo"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FIFO_NAME = re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo")
_FORBIDDEN_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9_-]{1,256}")
_FIFO_TOPIC_NAME = re.compile(r"[A-Za-z0-9_-]{1,251}\.fifo")
_ACCOUNT_ID = re.compile(r"\d{12}")
_REGION = re.compile(
    r"[a-z]{2,4}(?:-[a-z]+)?-(?:central|(?:north|south)(?:east|west)?|east|west)-\d{1,2}"
)


class QueueName(NamedTuple):
    """Which queue: "" for a part that is not known."""

    name: str
    account_id: str = ""
    region: str = ""

    @property
    def is_fifo(self) -> bool:
        return self.name.endswith(FIFO_SUFFIX)

    def arn(self, partition: str = "") -> str:
        partition = partition or partition_of(self.region)
        return f"arn:{partition}:sqs:{self.region}:{self.account_id}:{self.name}"


# The partitions of AWS, by how their regions begin, with the domain of their endpoints.
_PARTITIONS = (
    ("cn-", "aws-cn", "amazonaws.com.cn"),
    ("us-gov-", "aws-us-gov", "amazonaws.com"),
    ("us-isob-", "aws-iso-b", "sc2s.sgov.gov"),
    ("us-isof-", "aws-iso-f", "csp.hci.ic.gov"),
    ("eu-isoe-", "aws-iso-e", "cloud.adc-e.uk"),
    ("us-iso-", "aws-iso", "c2s.ic.gov"),
    ("eusc-", "aws-eusc", "amazonaws.eu"),
    ("", "aws", "amazonaws.com"),
)
_DUAL_STACK = ("api.aws", "api.amazonwebservices.com.cn", "api.amazonwebservices.eu")
_DOMAINS = tuple(f".{domain}" for domain in (*(each[2] for each in _PARTITIONS), *_DUAL_STACK))


def partition_of(region: str) -> str:
    """`aws`, or the partition that a region's name belongs to (`aws-cn`, `aws-us-gov`, …)."""
    return next(name for prefix, name, _ in _PARTITIONS if region.startswith(prefix))


def aws_host(service: str, region: str) -> str:
    """The host of a service in a region: `sqs.eu-west-1.amazonaws.com`."""
    domain = next(domain for prefix, _, domain in _PARTITIONS if region.startswith(prefix))
    return f"{service}.{region}.{domain}"


def is_host_of(service: str, host: str) -> bool:
    """Whether a host, in small letters, is that of a service in some region, and nothing else:
    `s3-us-west-2` is no region, so that nobody's bucket is taken for one."""
    region = host.removeprefix(f"{service}.").partition(".")[0]
    return _REGION.fullmatch(region) is not None and host == aws_host(service, region)


def is_aws_host(host: str) -> bool:
    """Whether a host is one of AWS's, of any service and partition."""
    return host.endswith(_DOMAINS)


def is_queue_name(name: str) -> bool:
    """1 to 80 letters, digits, hyphens and underscores; `.fifo` may end it and counts."""
    return (_FIFO_NAME if name.endswith(FIFO_SUFFIX) else _NAME).fullmatch(name) is not None


def safe_queue_name(name: str) -> str:
    """The name with each character that SQS forbids turned into `-`; `.fifo` at the end stays."""
    stem, suffix = (
        (name[: -len(FIFO_SUFFIX)], FIFO_SUFFIX) if name.endswith(FIFO_SUFFIX) else (name, "")
    )
    return _FORBIDDEN_IN_NAME.sub("-", stem) + suffix


def is_queue_url(text: str) -> bool:
    return text.startswith(("https://", "http://"))


def is_arn(text: str) -> bool:
    return text.startswith("arn:")


def parse_queue_url(url: str) -> QueueName:
    """The queue that a URL names. Raises `ValueError` where there is no name in it.

    Takes `https://sqs.REGION.amazonaws.com/ACCOUNT/NAME`, the legacy hosts
    `REGION.queue.amazonaws.com` and `queue.amazonaws.com` (which is us-east-1), and any other
    host and path whose last two parts are an account id and a name, or whose last is a name.
    """
    parts = urlsplit(url)
    path = [part for part in parts.path.split("/") if part]
    if not path:
        raise ValueError(f"no queue name in the URL {url!r}")
    account_id = path[-2] if len(path) > 1 and _ACCOUNT_ID.fullmatch(path[-2]) else ""
    return QueueName(path[-1], account_id, region_of_host(parts.hostname or ""))


def region_of_host(host: str) -> str:
    """The region that an SQS host name tells, or ""."""
    labels = host.lower().split(".")
    if host.lower() == "queue.amazonaws.com":
        return "us-east-1"
    for label in labels:
        if _REGION.fullmatch(label):
            return label
    return ""


def parse_queue_arn(arn: str) -> QueueName:
    """The queue of `arn:PARTITION:sqs:REGION:ACCOUNT:NAME`. Raises `ValueError` for other texts."""
    parts = arn.split(":")
    if len(parts) != 6 or parts[0] != "arn" or parts[2] != "sqs" or not parts[5]:
        raise ValueError(f"not the ARN of a queue: {arn!r}")
    return QueueName(parts[5], parts[4], parts[3])


# --- topics -------------------------------------------------------------------------------------


class TopicName(NamedTuple):
    """Which topic: "" for a part that is not known."""

    name: str
    account_id: str = ""
    region: str = ""

    @property
    def is_fifo(self) -> bool:
        return self.name.endswith(FIFO_SUFFIX)

    def arn(self, partition: str = "") -> str:
        partition = partition or partition_of(self.region)
        return f"arn:{partition}:sns:{self.region}:{self.account_id}:{self.name}"


def is_topic_name(name: str) -> bool:
    """1 to 256 letters, digits, hyphens and underscores; `.fifo` may end it and counts."""
    return (_FIFO_TOPIC_NAME if name.endswith(FIFO_SUFFIX) else _TOPIC_NAME).fullmatch(
        name
    ) is not None


def parse_topic_arn(arn: str) -> TopicName:
    """The topic of `arn:PARTITION:sns:REGION:ACCOUNT:NAME`. Raises `ValueError` for other texts."""
    parts = arn.split(":")
    if len(parts) != 6 or parts[0] != "arn" or parts[2] != "sns" or not parts[5]:
        raise ValueError(f"not the ARN of a topic: {arn!r}")
    return TopicName(parts[5], parts[4], parts[3])


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name alone: nothing is looked up."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
