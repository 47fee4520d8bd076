"""A botocore client that speaks SQS's query protocol, as botocore itself did before 1.31.81.

Today's service model has only the JSON protocol; what the older one said of the wire is put back
here: the protocol, the namespace, and the names of lists, maps and errors.
"""

from __future__ import annotations

import copy
from typing import Any

import botocore.session
from botocore.client import BaseClient
from botocore.config import Config
from botocore.loaders import Loader

# Names of the elements of lists, by the list's shape.
_ELEMENTS = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "BatchResultErrorEntryList": "BatchResultErrorEntry",
    "BinaryList": "BinaryListValue",
    "ChangeMessageVisibilityBatchRequestEntryList": "ChangeMessageVisibilityBatchRequestEntry",
    "ChangeMessageVisibilityBatchResultEntryList": "ChangeMessageVisibilityBatchResultEntry",
    "DeleteMessageBatchRequestEntryList": "DeleteMessageBatchRequestEntry",
    "DeleteMessageBatchResultEntryList": "DeleteMessageBatchResultEntry",
    "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
    "MessageAttributeNameList": "MessageAttributeName",
    "MessageList": "Message",
    "QueueUrlList": "QueueUrl",
    "SendMessageBatchRequestEntryList": "SendMessageBatchRequestEntry",
    "SendMessageBatchResultEntryList": "SendMessageBatchResultEntry",
    "StringList": "StringListValue",
    "TagKeyList": "TagKey",
}
# Names of the key and the value of maps, by the map's shape.
_ENTRIES = {
    "MessageBodyAttributeMap": ("Name", "Value"),
    "MessageBodySystemAttributeMap": ("Name", "Value"),
    "MessageSystemAttributeMap": ("Name", "Value"),
    "QueueAttributeMap": ("Name", "Value"),
    "TagMap": ("Key", "Value"),
}
# Names of maps and of some lists, by the member that holds them.
_MEMBERS = {
    "Attributes": "Attribute",
    "BinaryListValues": "BinaryListValue",
    "MessageAttributes": "MessageAttribute",
    "MessageSystemAttributes": "MessageSystemAttribute",
    "StringListValues": "StringListValue",
    "Tags": "Tag",
    "tags": "Tag",
}
# Codes of errors, by the shape of the exception; the others are called as their shape is.
_CODES = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    **{
        name: f"AWS.SimpleQueueService.{name}"
        for name in (
            "BatchEntryIdsNotDistinct",
            "BatchRequestTooLong",
            "EmptyBatchRequest",
            "InvalidBatchEntryId",
            "MessageNotInflight",
            "PurgeQueueInProgress",
            "QueueDeletedRecently",
            "TooManyEntriesInBatchRequest",
            "UnsupportedOperation",
        )
    },
}


class _OlderLoader(Loader):
    def load_service_model(
        self, service_name: str, type_name: str, api_version: str | None = None
    ) -> Any:
        model = super().load_service_model(service_name, type_name, api_version)
        if service_name == "sqs" and type_name == "service-2":
            return _as_query(copy.deepcopy(model))
        return model


def _as_query(model: Any) -> Any:
    metadata = model["metadata"]
    for name in ("awsQueryCompatible", "jsonVersion", "targetPrefix", "protocols"):
        metadata.pop(name, None)
    metadata["protocol"] = "query"
    metadata["xmlNamespace"] = "http://queue.amazonaws.com/doc/2012-11-05/"
    for name, shape in model["shapes"].items():
        if name in _CODES:
            shape["error"] = {"code": _CODES[name]}
        if name in _ELEMENTS:
            shape["member"]["locationName"] = _ELEMENTS[name]
        if name in _ENTRIES:
            shape["key"]["locationName"], shape["value"]["locationName"] = _ENTRIES[name]
        for member, reference in shape.get("members", {}).items():
            if member in _MEMBERS:
                reference["locationName"] = _MEMBERS[member]
    for operation in model["operations"].values():
        if "output" in operation:
            operation["output"]["resultWrapper"] = f"{operation['name']}Result"
    return model


# Loading a model takes longer than most tests; loaders keep what they have loaded.
_LOADERS = {
    "json": Loader(include_default_search_paths=True),
    "query": _OlderLoader(include_default_search_paths=True),
}


def client(protocol: str, **options: Any) -> BaseClient:
    """An SQS client of botocore that speaks "json" or "query"; MD5s are checked as always."""
    session = botocore.session.Session()
    session.register_component("data_loader", _LOADERS[protocol])
    options.setdefault("region_name", "us-east-1")
    options.setdefault("aws_access_key_id", "AKIDEXAMPLE")
    options.setdefault("aws_secret_access_key", "secret")
    options.setdefault(
        "config", Config(retries={"total_max_attempts": 2}, connect_timeout=5, read_timeout=30)
    )
    return session.create_client("sqs", **options)
