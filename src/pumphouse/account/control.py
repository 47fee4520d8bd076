"""The actions on queues as such: creating, finding, setting, purging and deleting them, and tags.

One handler per action; each raises what AWS raises. A handler validates everything before it
changes anything. What attributes may say is in `settings.py` and `dead_letters.py`, permissions are
in `permissions.py`, message move tasks in `moves.py`.

Access policies are stored and shown, and not enforced: an account lets everyone in.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pumphouse.account.dead_letters import check_dead_letter, check_sources
from pumphouse.account.fifo import FifoQueue
from pumphouse.account.queue import Queue
from pumphouse.account.settings import QueueSettings, check_asked, created
from pumphouse.account.standard import StandardQueue
from pumphouse.errors import ServiceError
from pumphouse.protocol.faults import fault
from pumphouse.protocol.names import QueueName
from pumphouse.protocol.operations import (
    DONE,
    CreateQueue,
    CreateQueueResult,
    DeleteQueue,
    Done,
    GetQueueAttributes,
    GetQueueAttributesResult,
    GetQueueUrl,
    GetQueueUrlResult,
    ListDeadLetterSourceQueues,
    ListDeadLetterSourceQueuesResult,
    ListQueues,
    ListQueuesResult,
    ListQueueTags,
    ListQueueTagsResult,
    Operation,
    PurgeQueue,
    SetQueueAttributes,
    TagQueue,
    UntagQueue,
)

if TYPE_CHECKING:
    from pumphouse.account.account import Scope

RULE_SECONDS = 60.0
"""How long AWS wants after a purge until the next, and after a deletion until a name is free."""
MAX_TAGS = 50
MAX_PAGE = 1000

_TAG_TEXT = re.compile(r"[\w\s.:/=+\-@]*")


# --- queues -------------------------------------------------------------------------------------


def create_queue(scope: Scope, operation: CreateQueue) -> CreateQueueResult:
    """A new queue, or the one of this name where every attribute that is named is the same."""
    attributes = operation.attributes or {}
    tags = operation.tags or {}
    settings = created(operation.queue_name, attributes)
    name = QueueName(operation.queue_name, scope.account_id, scope.region)
    existing = scope.queues.get(name.name)
    if existing is not None:
        if other := existing.settings.difference(attributes):
            raise _exists(f"a different value for attribute {other}")
        if tags and tags != existing.tags:
            raise _exists("a different value for tag(s)")
        return CreateQueueResult(existing.url)
    _check_redrive(scope, name, settings, attributes)
    _check_tags(name, tags, tags)
    _check_not_deleted_recently(scope, name.name)
    kind = FifoQueue if settings.fifo else StandardQueue
    queue = kind(name, scope.url_of(name.name), settings, scope.clock, scope.account.redrive)
    queue.tags = dict(tags)
    scope.queues[name.name] = queue
    return CreateQueueResult(queue.url)


def _check_not_deleted_recently(scope: Scope, name: str) -> None:
    deleted = scope.deleted.get(name)
    if deleted is None or not scope.account.sixty_second_rules:
        return
    if scope.clock.monotonic() < deleted + RULE_SECONDS:
        raise fault(
            "QueueDeletedRecently",
            "You must wait 60 seconds after deleting a queue before you can create another with "
            "the same name.",
        )
    del scope.deleted[name]


def delete_queue(scope: Scope, operation: DeleteQueue) -> Done:
    """The queue and its messages are gone at once, and whoever waits for one is told."""
    queue = scope.queue(operation.queue_url)
    now = scope.clock.monotonic()
    home = scope.account.within(region=queue.name.region, account_id=queue.name.account_id)
    del home.queues[queue.name.name]
    deleted = home.deleted  # in the order of their deletion
    while deleted and now >= deleted[first := next(iter(deleted))] + RULE_SECONDS:
        del deleted[first]
    deleted.pop(queue.name.name, None)
    deleted[queue.name.name] = now
    scope.account.move_tasks.forget(queue.name)
    scope.account.forget_queue(queue, operation.queue_url)
    queue.close()
    return DONE


def purge_queue(scope: Scope, operation: PurgeQueue) -> Done:
    """Delete every message, those in flight and delayed too; once in 60 seconds."""
    queue = scope.queue(operation.queue_url)
    now = scope.clock.monotonic()
    if now < queue.purged + RULE_SECONDS and scope.account.sixty_second_rules:
        raise fault(
            "PurgeQueueInProgress",
            f"Only one PurgeQueue operation on {queue.name.name} is allowed every 60 seconds.",
        )
    queue.purged = now
    queue.clear()
    return DONE


def get_queue_url(scope: Scope, operation: GetQueueUrl) -> GetQueueUrlResult:
    """The URL of a queue of this account or of the owner's, in this region."""
    if not operation.queue_name:
        raise fault(
            "InvalidParameterValue",
            "Value for parameter QueueName is invalid. Reason: Must specify a queue name.",
        )
    owner = operation.queue_owner_aws_account_id or scope.account_id
    queue = scope.account.find(QueueName(operation.queue_name, owner, scope.region).arn())
    if queue is None:
        raise fault("QueueDoesNotExist")
    return GetQueueUrlResult(queue.url)


# --- lists --------------------------------------------------------------------------------------


def list_queues(scope: Scope, operation: ListQueues) -> ListQueuesResult:
    """Queues by name, in pages where `max_results` says how many."""
    prefix = operation.queue_name_prefix or ""
    urls, token = _page(
        (queue for queue in scope.queues.values() if queue.name.name.startswith(prefix)),
        operation.max_results,
        operation.next_token,
    )
    return ListQueuesResult(urls, token)


def list_dead_letter_source_queues(
    scope: Scope, operation: ListDeadLetterSourceQueues
) -> ListDeadLetterSourceQueuesResult:
    """The queues whose redrive policy names this one, in pages."""
    urls, token = _page(
        sources_of(scope, scope.queue(operation.queue_url)),
        operation.max_results,
        operation.next_token,
    )
    return ListDeadLetterSourceQueuesResult(urls, token)


def sources_of(scope: Scope, dead_letters: Queue) -> list[Queue]:
    """The queues whose dead letters go to this one."""
    arn = dead_letters.arn
    return [
        queue
        for queue in scope.queues.values()
        if queue.settings.redrive_policy is not None
        and queue.settings.redrive_policy.target_arn == arn
    ]


def _page(
    queues: Iterable[Queue], max_results: int | None, token: str | None
) -> tuple[list[str], str | None]:
    """One page of URLs, and the token of the next. A token is the name before the page."""
    if max_results is not None and not 0 <= max_results <= MAX_PAGE:
        raise fault(
            "InvalidParameterValue",
            "Value for parameter MaxResults is invalid. "
            f"Reason: MaxResults must be an integer between 1 and {MAX_PAGE}.",
        )
    after = _name_of(token) if token else ""
    rest = sorted((queue for queue in queues if queue.name.name > after), key=_by_name)
    size = max_results or MAX_PAGE
    page = rest[:size]
    more = len(rest) > size and max_results  # without MaxResults AWS gives no token
    return [queue.url for queue in page], _token_of(page[-1].name.name) if more else None


def _by_name(queue: Queue) -> str:
    return queue.name.name


def _token_of(name: str) -> str:
    return urlsafe_b64encode(f"after:{name}".encode()).decode()


def _name_of(token: str) -> str:
    try:
        kind, _, name = urlsafe_b64decode(token.encode()).decode().partition(":")
    except ValueError:
        kind = name = ""
    if kind != "after" or not name:
        raise fault("InvalidParameterValue", "Invalid or expired next token.")
    return name


# --- attributes ---------------------------------------------------------------------------------


def get_queue_attributes(scope: Scope, operation: GetQueueAttributes) -> GetQueueAttributesResult:
    """The attributes that are asked for and that the queue has; nothing where none are."""
    queue = scope.queue(operation.queue_url)
    names = operation.attribute_names or []
    check_asked(names)
    if not names:
        return GetQueueAttributesResult({})
    shown = _shown(queue, scope.clock.monotonic())
    if "All" not in names:
        shown = {name: shown[name] for name in names if name in shown}
    return GetQueueAttributesResult(shown)


def _shown(queue: Queue, now: float) -> dict[str, str]:
    queue.settle(now)
    return {
        "QueueArn": queue.arn,
        "ApproximateNumberOfMessages": str(queue.visible),
        "ApproximateNumberOfMessagesNotVisible": str(queue.in_flight),
        "ApproximateNumberOfMessagesDelayed": str(queue.delayed),
        "CreatedTimestamp": str(int(queue.created_at)),
        "LastModifiedTimestamp": str(int(queue.modified_at)),
        **queue.settings.shown(),
    }


def set_queue_attributes(scope: Scope, operation: SetQueueAttributes) -> Done:
    """Change attributes, all or none; they hold at once."""
    queue = scope.queue(operation.queue_url)
    if not operation.attributes:
        raise fault("MissingParameter", "The request must contain the parameter Attribute.Name.")
    settings = queue.settings.changed(operation.attributes)
    _check_redrive(scope, queue.name, settings, operation.attributes)
    configure(scope, queue, settings)
    return DONE


def configure(scope: Scope, queue: Queue, settings: QueueSettings) -> None:
    """Give a queue other settings."""
    queue.modified_at = scope.clock.now()
    queue.configure(settings, scope.clock.monotonic())


def _check_redrive(
    scope: Scope, source: QueueName, settings: QueueSettings, attributes: Mapping[str, str]
) -> None:
    text = attributes.get("RedriveAllowPolicy")
    if text and settings.redrive_allow_policy is not None:
        check_sources(source, settings.redrive_allow_policy, text)
    text = attributes.get("RedrivePolicy")
    policy = settings.redrive_policy
    if not text or policy is None:
        return
    target = scope.account.find(policy.target_arn)
    allow = target.settings.redrive_allow_policy if target is not None else None
    check_dead_letter(source, policy, text, target is not None, allow)


def _exists(what: str) -> ServiceError:
    return fault("QueueNameExists", f"A queue already exists with the same name and {what}")


# --- tags ---------------------------------------------------------------------------------------


def list_queue_tags(scope: Scope, operation: ListQueueTags) -> ListQueueTagsResult:
    """A queue's tags."""
    return ListQueueTagsResult(dict(scope.queue(operation.queue_url).tags))


def tag_queue(scope: Scope, operation: TagQueue) -> Done:
    """Add tags; one with a known key takes the other's place."""
    queue = scope.queue(operation.queue_url)
    if not operation.tags:
        raise fault("MissingParameter", "The request must contain the parameter Tags.")
    tags = {**queue.tags, **operation.tags}
    _check_tags(queue.name, operation.tags, tags)
    queue.tags = tags
    return DONE


def untag_queue(scope: Scope, operation: UntagQueue) -> Done:
    """Take tags away; a key that the queue does not have is no fault."""
    queue = scope.queue(operation.queue_url)
    if not operation.tag_keys:
        raise fault(
            "InvalidParameterValue", "Tag keys must be between 1 and 128 characters in length."
        )
    for key in operation.tag_keys:
        queue.tags.pop(key, None)
    return DONE


def _check_tags(name: QueueName, added: Mapping[str, str], tags: Mapping[str, str]) -> None:
    if len(tags) > MAX_TAGS:
        raise fault("InvalidParameterValue", f"Too many tags added for queue {name.name}.")
    for key, value in added.items():
        if not 1 <= len(key) <= 128:
            raise fault(
                "InvalidParameterValue", "Tag keys must be between 1 and 128 characters in length."
            )
        if len(value) > 256:
            raise fault(
                "InvalidParameterValue",
                "Tag values must be between 0 and 256 characters in length.",
            )
        if key.lower().startswith("aws:"):
            raise fault(
                "InvalidParameterValue",
                f"Tag key {key} is invalid. Reason: The prefix aws: is reserved.",
            )
        if not (_TAG_TEXT.fullmatch(key) and _TAG_TEXT.fullmatch(value)):
            raise fault(
                "InvalidParameterValue",
                f"Tag {key} is invalid. Reason: Tags can only include letters, digits, "
                "whitespace, and the characters _ . : / = + - @.",
            )


HANDLERS: dict[type[Operation[Any]], Callable[[Any, Any], Any]] = {
    CreateQueue: create_queue,
    DeleteQueue: delete_queue,
    GetQueueAttributes: get_queue_attributes,
    GetQueueUrl: get_queue_url,
    ListDeadLetterSourceQueues: list_dead_letter_source_queues,
    ListQueueTags: list_queue_tags,
    ListQueues: list_queues,
    PurgeQueue: purge_queue,
    SetQueueAttributes: set_queue_attributes,
    TagQueue: tag_queue,
    UntagQueue: untag_queue,
}
"""The handler of each operation: it takes the scope and the operation."""
