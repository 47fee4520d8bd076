"""The one table between AWS's error codes and `errors.py`.

A fault has up to three spellings: the short code that pumphouse uses, the shape that the JSON
protocol names in `__type`, and the code of the query protocol (which JSON answers carry as well, in
the header `x-amzn-query-error`). The account raises errors with `fault()`, the wire client makes
them with `from_answer()`; both give the same types. A code decides before the HTTP status, and
both before the sender-fault flag: AWS answers throttling as a sender's fault with 400 and 403.

SNS has rows of its own (`SNS_TABLE`), some under codes that SQS spells otherwise on the wire. Who
asks says for which `service`; a code that this one does not have is looked up with the other.
"""

from __future__ import annotations

from typing import NamedTuple

from pumphouse.errors import (
    ClockSkewError,
    MessageNotInflight,
    OverLimit,
    PurgeQueueInProgress,
    QueueDeletedRecently,
    QueueDoesNotExist,
    QueueNameExists,
    ReceiptHandleExpired,
    ReceiptHandleIsInvalid,
    RefusedConfigError,
    RefusedError,
    ServiceError,
    SubscriptionDoesNotExist,
    ThrottledError,
    TopicDoesNotExist,
    TransientError,
)

_CORAL = "com.amazon.coral.service#"
_SQS = "com.amazonaws.sqs#"
_QUERY = "AWS.SimpleQueueService."


class Fault(NamedTuple):
    """One row: the spellings of a fault, its HTTP status and its class.

    `message` and `query_message` are AWS's words where they are always the same.
    """

    code: str
    json_type: str
    query_code: str
    status: int
    error: type[ServiceError]
    message: str = ""
    query_message: str = ""


def _sqs(
    name: str,
    error: type[ServiceError] = RefusedError,
    status: int = 400,
    query: str = "",
    message: str = "",
    query_message: str = "",
) -> Fault:
    """A fault of SQS's own model."""
    return Fault(name, _SQS + name, query or name, status, error, message, query_message)


def _common(
    name: str,
    error: type[ServiceError],
    status: int = 400,
    json: str = "",
    message: str = "",
) -> Fault:
    """A fault that all AWS services share."""
    return Fault(name, _CORAL + (json or name), name, status, error, message)


TABLE: tuple[Fault, ...] = (
    # the message or the request
    _common("InvalidParameterValue", RefusedError, json="InvalidParameterValueException"),
    _common("MissingParameter", RefusedError, json="MissingRequiredParameterException"),
    _common(
        "InvalidParameterCombination", RefusedError, json="InvalidParameterCombinationException"
    ),
    _common("MalformedQueryString", RefusedError, 404),
    _common("InvalidQueryParameter", RefusedError),
    _common("InvalidAction", RefusedError),
    _common("MissingAction", RefusedError),
    _common("RequestEntityTooLarge", RefusedError, 413, json="RequestEntityTooLargeException"),
    _common("SerializationException", RefusedError),
    _common("UnknownOperationException", RefusedError, 404),
    _common("ValidationError", RefusedError, json="ValidationException"),
    _sqs("InvalidMessageContents"),
    _sqs("InvalidAttributeName"),
    _sqs("InvalidAttributeValue"),
    _sqs("InvalidIdFormat"),
    _common("EmptyValue", RefusedError),  # a batch entry's empty body
    _sqs("InvalidBatchEntryId", query=_QUERY + "InvalidBatchEntryId"),
    _sqs("BatchEntryIdsNotDistinct", query=_QUERY + "BatchEntryIdsNotDistinct"),
    _sqs("BatchRequestTooLong", query=_QUERY + "BatchRequestTooLong"),
    _sqs("EmptyBatchRequest", query=_QUERY + "EmptyBatchRequest"),
    _sqs("TooManyEntriesInBatchRequest", query=_QUERY + "TooManyEntriesInBatchRequest"),
    _sqs("UnsupportedOperation", query=_QUERY + "UnsupportedOperation"),
    _sqs("ResourceNotFoundException", status=404),
    _sqs("QueueNameExists", QueueNameExists, query="QueueAlreadyExists"),
    _sqs("QueueDeletedRecently", QueueDeletedRecently, query=_QUERY + "QueueDeletedRecently"),
    _sqs("PurgeQueueInProgress", PurgeQueueInProgress, 403, _QUERY + "PurgeQueueInProgress"),
    _sqs("ReceiptHandleIsInvalid", ReceiptHandleIsInvalid, 404),
    _sqs("MessageNotInflight", MessageNotInflight, query=_QUERY + "MessageNotInflight"),
    # settings, queues, keys and credentials
    _sqs(
        "QueueDoesNotExist",
        QueueDoesNotExist,
        query=_QUERY + "NonExistentQueue",
        message="The specified queue does not exist.",
        query_message="The specified queue does not exist for this wsdl version.",
    ),
    _sqs("InvalidAddress", RefusedConfigError, 404),
    _sqs("InvalidSecurity", RefusedConfigError, 403),
    _sqs("KmsAccessDenied", RefusedConfigError, query="KMS.AccessDeniedException"),
    _sqs("KmsDisabled", RefusedConfigError, query="KMS.DisabledException"),
    _sqs("KmsInvalidKeyUsage", RefusedConfigError, query="KMS.InvalidKeyUsageException"),
    _sqs("KmsInvalidState", RefusedConfigError, query="KMS.InvalidStateException"),
    _sqs("KmsNotFound", RefusedConfigError, query="KMS.NotFoundException"),
    _sqs("KmsOptInRequired", RefusedConfigError, query="KMS.OptInRequired"),
    _common("AccessDenied", RefusedConfigError, 403, json="AccessDeniedException"),
    _common("AuthFailure", RefusedConfigError, 403),
    _common("NotAuthorized", RefusedConfigError, 403),
    _common("InvalidClientTokenId", RefusedConfigError, 403),
    _common("UnrecognizedClientException", RefusedConfigError, 403),
    _common("InvalidAccessKeyId", RefusedConfigError, 403),
    _common(
        "MissingAuthenticationToken",
        RefusedConfigError,
        403,
        json="MissingAuthenticationTokenException",
    ),
    _common("IncompleteSignature", RefusedConfigError, 403, json="IncompleteSignatureException"),
    _common("SignatureDoesNotMatch", RefusedConfigError, 403, json="InvalidSignatureException"),
    _common("OptInRequired", RefusedConfigError, 403),
    _common("RequestTimeTooSkewed", ClockSkewError, 403),
    _common("RequestExpired", ClockSkewError, 403),
    # too much
    _sqs("RequestThrottled", ThrottledError, 403),
    _sqs("KmsThrottled", ThrottledError, query="KMS.ThrottlingException"),
    _sqs("OverLimit", OverLimit, 403),
    _common("Throttling", ThrottledError),
    _common("ThrottlingException", ThrottledError),
    _common("ThrottledException", ThrottledError),
    _common("RequestThrottledException", ThrottledError),
    _common("TooManyRequestsException", ThrottledError, 429),
    _common("RequestLimitExceeded", ThrottledError),
    _common("BandwidthLimitExceeded", ThrottledError),
    _common("SlowDown", ThrottledError, 503),
    _common("ServiceUnavailable", ThrottledError, 503, json="ServiceUnavailableException"),
    # may pass
    _common("ExpiredToken", TransientError, 403, json="ExpiredTokenException"),
    _common("InternalError", TransientError, 500),
    _common("InternalFailure", TransientError, 500),
    _common("InternalServerError", TransientError, 500),
    _common("ServiceFailure", TransientError, 500),
    _common("RequestTimeout", TransientError, 400, json="RequestTimeoutException"),
)


def _sns(code: str, error: type[ServiceError] = RefusedError, status: int = 400) -> Fault:
    """A fault of SNS's own model, which has one spelling."""
    return Fault(code, code, code, status, error)


SNS_TABLE: tuple[Fault, ...] = (
    # the message or the request
    _sns("InvalidParameter"),
    _sns("ParameterValueInvalid"),
    _sns("ValidationException"),
    _sns("InvalidState"),
    _sns("UserError"),
    _sns("BatchEntryIdsNotDistinct"),
    _sns("BatchRequestTooLong"),
    _sns("EmptyBatchRequest"),
    _sns("InvalidBatchEntryId"),
    _sns("TooManyEntriesInBatchRequest"),
    _sns("ResourceNotFound", RefusedConfigError, 404),
    # settings, topics, keys and permissions
    _sns("NotFound", TopicDoesNotExist, 404),
    _sns("AuthorizationError", RefusedConfigError, 403),
    _sns("InvalidSecurity", RefusedConfigError, 403),
    _sns("EndpointDisabled", RefusedConfigError),
    _sns("PlatformApplicationDisabled", RefusedConfigError),
    _sns("FilterPolicyLimitExceeded", RefusedConfigError, 403),
    _sns("ReplayLimitExceeded", RefusedConfigError, 403),
    _sns("SubscriptionLimitExceeded", RefusedConfigError, 403),
    _sns("TopicLimitExceeded", RefusedConfigError, 403),
    _sns("TagLimitExceeded", RefusedConfigError),
    _sns("TagPolicy", RefusedConfigError),
    _sns("KMSAccessDenied", RefusedConfigError),
    _sns("KMSDisabled", RefusedConfigError),
    _sns("KMSInvalidState", RefusedConfigError),
    _sns("KMSNotFound", RefusedConfigError),
    _sns("KMSOptInRequired", RefusedConfigError, 403),
    # too much
    _sns("KMSThrottling", ThrottledError),
    _sns("Throttled", ThrottledError, 429),
    # may pass
    _sns("ConcurrentAccess", TransientError),
    _sns("StaleTag", TransientError),
    _sns("InternalError", TransientError, 500),
)

_BY_CODE: dict[str, Fault] = {}
_SNS_BY_CODE = {row.code: row for row in SNS_TABLE}
for _row in (*TABLE, *SNS_TABLE):
    for _spelling in (_row.code, _row.json_type, _row.json_type.partition("#")[2], _row.query_code):
        if _spelling:
            _BY_CODE.setdefault(_spelling, _row)


def lookup(code: str, service: str = "sqs") -> Fault | None:
    """The row of a code in any of its spellings, with or without a namespace."""
    if service == "sns" and (row := _SNS_BY_CODE.get(code)) is not None:
        return row
    return _BY_CODE.get(code) or _BY_CODE.get(code.rpartition("#")[2].partition(":")[0])


def fault(code: str, message: str = "", service: str = "sqs") -> ServiceError:
    """The error for a fault of the table, worded `message` or as AWS always words it."""
    row = lookup(code, service)
    if row is None:
        raise KeyError(code)
    return _narrowed(row.error, row.code, message)(
        message or row.message,
        code=row.code,
        query_code=row.query_code,
        status=row.status,
        sender_fault=row.status < 500,
    )


def from_answer(
    code: str,
    message: str = "",
    *,
    status: int,
    sender_fault: bool | None = None,
    query_code: str = "",
    request_id: str = "",
    service: str = "sqs",
) -> ServiceError:
    """The error that an answer means, for a request or for one entry of a batch.

    For an entry, `status` is 400 for the sender's fault and 500 otherwise. Codes that are not in
    the table are throttling with status 429 or 503 and transient with any other.
    """
    row = lookup(code, service) or (lookup(query_code, service) if query_code else None)
    error: type[ServiceError]
    if row is not None:
        error = row.error
    elif status in (429, 503):
        error = ThrottledError
    else:
        error = TransientError
    short = row.code if row else code.rpartition("#")[2]
    error = _narrowed(error, short, message)
    if status in (429, 503) and issubclass(error, TransientError):
        error = ThrottledError
    return error(
        message,
        code=short,
        query_code=query_code or (row.query_code if row else short),
        status=status,
        sender_fault=status < 500 if sender_fault is None else sender_fault,
        request_id=request_id,
    )


def _narrowed(error: type[ServiceError], code: str, message: str) -> type[ServiceError]:
    """The class of an error where its code has several and its message tells which."""
    if code == "SignatureDoesNotMatch" and _is_skew(message):
        return ClockSkewError
    if code == "InvalidParameterValue" and (
        "receipt handle has expired" in message
        or "not available for visibility timeout change" in message
    ):
        return ReceiptHandleExpired
    if code == "NotFound" and message.startswith("Subscription"):
        return SubscriptionDoesNotExist
    return error


def _is_skew(message: str) -> bool:
    """AWS words a skewed clock as a signature that is expired or not yet current."""
    return "Signature expired" in message or "Signature not yet current" in message
