"""The document of a service: AsyncAPI 3.0, from what an app declares, without asking anyone.

`document` puts it together; which channels there are is worked out in `channels.py`, the schemas of
payloads in `schemas.py`, and `writing.py` makes it text. It names queues and topics, and holds no
credentials, ARNs or account ids (`plain.py`). Bindings are of SQS 0.2.0 and SNS 0.1.0.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pumphouse.addressing import Topic
from pumphouse.asyncapi.channels import Channel, channels_of, message_names, regions_of
from pumphouse.asyncapi.plain import plain, plain_values
from pumphouse.asyncapi.schemas import Schemas, schemas_of
from pumphouse.asyncapi.writing import dumps
from pumphouse.errors import UsageError
from pumphouse.model import CORRELATION_HEADER
from pumphouse.protocol.names import aws_host
from pumphouse.subscriber.kinds import same_type
from pumphouse.subscriber.queue import Queue
from pumphouse.subscriber.setup import receive_limit
from pumphouse.subscriber.subscription import Subscription

if TYPE_CHECKING:
    from pumphouse.app import App

__all__ = ["VERSION", "document", "dumps"]

VERSION = "3.0.0"
SQS_BINDING, SNS_BINDING = "0.2.0", "0.1.0"

# Attributes of a queue that the binding has a place for, and how they are read.
_ATTRIBUTES: dict[str, str] = {
    "DelaySeconds": "deliveryDelay",
    "ReceiveMessageWaitTimeSeconds": "receiveMessageWaitTime",
    "MessageRetentionPeriod": "messageRetentionPeriod",
    "DeduplicationScope": "deduplicationScope",
    "FifoThroughputLimit": "fifoThroughputLimit",
}


def document(
    app: App,
    *,
    title: str | None = None,
    version: str = "0.1.0",
    description: str | None = None,
    region: str | None = None,
    endpoint_url: str | None = None,
) -> dict[str, Any]:
    """The AsyncAPI document of an app, as plain JSON values in a fixed order.

    `title` is the app's name where none is given, `version` that of the service. The server is the
    endpoint, or AWS's of the region: of the one that is given, or that the app's queue URLs and
    ARNs tell; otherwise it is left open.

    The schema of a payload type that has none is the empty one. Raises `UsageError` for a region or
    an endpoint that can't be one.
    """
    channels = channels_of(app)
    kinds = [kind for channel in channels for kind in channel.kinds]
    kinds += [need.kind for channel in channels for need in channel.headers]
    schemas = schemas_of(kinds)
    messages: dict[str, Any] = {}
    for channel in channels:
        names = message_names(channel.kinds)
        for place, kind in enumerate(channel.kinds):
            messages[f"{channel.id}.{names[place]}"] = _message(
                channel, kind, names[place], schemas
            )
    info = {"title": plain(app.name if title is None else title), "version": version}
    if not info["title"].strip() or not version.strip():
        raise UsageError("title and version of the document can't be empty")
    if description:
        info["description"] = plain(description)
    components = {
        "messages": dict(sorted(messages.items())),
        "schemas": dict(sorted(schemas.components.items())),
    }
    return {
        "asyncapi": VERSION,
        "info": info,
        "defaultContentType": "application/json",
        "servers": _servers(channels, region, endpoint_url),
        "channels": {channel.id: _channel(channel) for channel in channels},
        "operations": dict(sorted(_operations(channels))),
        "components": {name: value for name, value in components.items() if value},
    }


# --- servers --------------------------------------------------------------------------------------


def _servers(
    channels: list[Channel], region: str | None, endpoint_url: str | None
) -> dict[str, Any]:
    from pumphouse.http.endpoint import check_endpoint_url, check_region

    if region is not None:
        check_region(region)
    elif len(told := regions_of(channels)) == 1:
        (region,) = told
    services = sorted({_service(channel) for channel in channels}, reverse=True) or ["sqs"]
    if endpoint_url is not None:
        origin = check_endpoint_url(endpoint_url)
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        usual = {"http": 80, "https": 443}[origin.scheme]
        host = host if origin.port == usual else f"{host}:{origin.port}"
        return {service: {"host": host, "protocol": service} for service in services}
    if region is None:
        variables = {"region": {"description": "The AWS region that the service runs in."}}
        return {
            service: {
                "host": f"{service}.{{region}}.amazonaws.com",
                "protocol": service,
                "variables": variables,
            }
            for service in services
        }
    return {
        service: {"host": aws_host(service, region), "protocol": service} for service in services
    }


def _service(channel: Channel) -> str:
    return "sns" if isinstance(channel.to, Topic) else "sqs"


# --- channels -------------------------------------------------------------------------------------


def _channel(channel: Channel) -> dict[str, Any]:
    names = message_names(channel.kinds)
    return {
        "address": channel.name,
        "messages": {
            names[place]: {"$ref": f"#/components/messages/{channel.id}.{names[place]}"}
            for place in range(len(channel.kinds))
        },
        "servers": [{"$ref": f"#/servers/{_service(channel)}"}],
        "bindings": {_service(channel): _binding(channel)},
    }


def _binding(channel: Channel) -> dict[str, Any]:
    if isinstance(channel.to, Topic):
        binding: dict[str, Any] = {"name": channel.to.name}
        if channel.to.is_fifo:
            binding["ordering"] = {"type": "FIFO"}
        return {**binding, "bindingVersion": SNS_BINDING}
    queue = _queue(channel.to)
    binding = {"queue": queue}
    subscription = channel.subscription
    if subscription is not None and (dead_letter := subscription.dead_letter) is not None:
        binding["deadLetterQueue"] = _queue(dead_letter)
        policy: dict[str, Any] = {"deadLetterQueue": {"name": dead_letter.known_as.name}}
        # one that is only checked has some number at least as high as the attempts
        if subscription.redrive == "write" and subscription.max_attempts is not None:
            policy["maxReceiveCount"] = receive_limit(subscription.max_attempts)
        queue["redrivePolicy"] = policy
    return {**binding, "bindingVersion": SQS_BINDING}


def _queue(queue: Queue) -> dict[str, Any]:
    """What is known of a queue: its name, its kind, its lease, and what it is created with."""
    found: dict[str, Any] = {"name": queue.known_as.name, "fifoQueue": queue.is_fifo}
    attributes = queue.creation_attributes() if queue.create_if_missing else {}
    for name, place in _ATTRIBUTES.items():
        if (text := attributes.get(name)) is not None:
            found[place] = int(text) if text.isdecimal() else text
    lease = queue.visibility_timeout or attributes.get("VisibilityTimeout")
    if lease is not None:
        found["visibilityTimeout"] = int(lease)
    return found


# --- operations -----------------------------------------------------------------------------------


def _operations(channels: Iterable[Channel]) -> Iterable[tuple[str, dict[str, Any]]]:
    for channel in channels:
        if channel.subscription is not None:
            yield f"receive-{channel.id}", _receive(channel, channel.subscription)
        if channel.sends:
            sending: dict[str, Any] = {
                "action": "send",
                "channel": {"$ref": f"#/channels/{channel.id}"},
                "messages": _references(channel, channel.sends),
            }
            if channel.sinks:
                sending["x-sinks"] = plain_values(channel.sinks)
            yield f"send-{channel.id}", sending


def _receive(channel: Channel, subscription: Subscription) -> dict[str, Any]:
    plan = subscription.plan
    operation: dict[str, Any] = {
        "action": "receive",
        "channel": {"$ref": f"#/channels/{channel.id}"},
        "title": plan.name,
    }
    if words := _words(plan.function):
        operation["description"] = words
    operation["messages"] = _references(channel, channel.receives)
    if (to := channel.replies) is not None:
        operation["reply"] = {
            "channel": {"$ref": f"#/channels/{to.id}"},
            "messages": _references(to, channel.reply_types),
        }
    if subscription.max_attempts is not None and subscription.dead_letter is not None:
        operation["x-max-attempts"] = subscription.max_attempts
        operation["x-dead-letter-queue"] = subscription.dead_letter.known_as.name
    return operation


def _words(function: Any) -> str:
    """The docstring of a handler."""
    words = getattr(function, "__doc__", None)
    return plain(inspect.cleandoc(words)) if isinstance(words, str) else ""


def _references(channel: Channel, kinds: list[Any]) -> list[dict[str, str]]:
    names = message_names(channel.kinds)
    return [
        {"$ref": f"#/channels/{channel.id}/messages/{names[place]}"}
        for place, kind in enumerate(channel.kinds)
        if any(same_type(kind, each) for each in kinds)
    ]


# --- messages -------------------------------------------------------------------------------------


def _message(channel: Channel, kind: Any, name: str, schemas: Schemas) -> dict[str, Any]:
    headers = {need.name: schemas.of(need.kind) for need in channel.headers}
    headers.setdefault(CORRELATION_HEADER, {"type": "string"})
    described: dict[str, Any] = {
        "type": "object",
        "properties": dict(sorted(headers.items())),
    }
    if required := sorted({need.name for need in channel.headers if need.required}):
        described["required"] = required
    message: dict[str, Any] = {"name": name}
    if content_type := _content_type(kind):
        message["contentType"] = content_type
    message["headers"] = described
    if kind is not Any:
        message["payload"] = schemas.of(kind)
    message["correlationId"] = {"location": f"$message.header#/{CORRELATION_HEADER}"}
    return message


def _content_type(kind: Any) -> str:
    """The type of a body; "" where nothing is said of it."""
    if kind is str or kind is inspect.Parameter.empty:
        return "text/plain"
    if kind is bytes:
        return "application/octet-stream"
    return "" if kind is Any else "application/json"
