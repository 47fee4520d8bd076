"""The AsyncAPI document: valid against the published schema, complete, the same every time, and
silent about where a service runs."""

from __future__ import annotations

import enum
import json
import re
import sys
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar

import jsonschema
import msgspec
import pydantic
import pytest
import typing_extensions
import yaml
from hypothesis import HealthCheck, given, settings
from referencing import Registry, Resource

from pumphouse import (
    Ack,
    App,
    Depends,
    Header,
    Message,
    Publisher,
    Queue,
    Reply,
    Retry,
    Router,
    Topic,
    UsageError,
)
from pumphouse.asyncapi import document, dumps
from pumphouse.asyncapi.plain import plain
from pumphouse.asyncapi.schemas import draft7, schemas_of
from pumphouse.claim_check import ClaimCheck, MemoryBlobStore
from pumphouse.publishers import To
from pumphouse.sink.options import SinkOptions
from pumphouse.subscriber.setup import receive_limit
from support.declared import ACCOUNT, ARN, URL, apps

T = TypeVar("T")


class Line(msgspec.Struct):
    article: str
    count: Annotated[int, msgspec.Meta(gt=0)] = 1


class Order(msgspec.Struct):
    """An order, as the shop takes it."""

    id: int
    lines: list[Line]
    pair: tuple[int, str] = (0, "")
    placed: datetime | None = None


class Created(msgspec.Struct, tag="created"):
    id: int


class Cancelled(msgspec.Struct, tag="cancelled"):
    id: int
    why: str


@dataclass
class Parcel:
    weight: Decimal
    inside: Line


class Note(TypedDict, total=False):
    text: str


class Page(msgspec.Struct, Generic[T]):
    items: list[T]


class Tree(msgspec.Struct):
    below: list[Tree] = []


class Address(pydantic.BaseModel):
    street: str
    other: Address | None = None


class Customer(pydantic.BaseModel):
    """A customer."""

    name: str
    home: Address
    point: tuple[float, float] = (0.0, 0.0)


class Card(pydantic.BaseModel):
    kind: Literal["card"]
    number: str


class Cash(pydantic.BaseModel):
    kind: Literal["cash"]


class Wallet(pydantic.BaseModel):
    paid: Annotated[Card | Cash, pydantic.Field(discriminator="kind")]


@pydantic.dataclasses.dataclass
class Point:
    x: int


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


def tenant(who: Annotated[str, Header("x-tenant")]) -> str:
    return who


@pytest.fixture(scope="session")
def validator(shared_data: Path) -> jsonschema.Draft7Validator:
    path = shared_data / "asyncapi" / "3.0.0.json"
    if not path.is_file():
        pytest.skip(f"no schema of AsyncAPI at {path}")
    schema = Resource.from_contents(json.loads(path.read_text()))
    # every "$id" in it is looked up once, and not again for each reference
    registry = (schema @ Registry()).crawl()
    return jsonschema.Draft7Validator(schema.contents, registry=registry)


def references(value: Any) -> set[str]:
    """Everything that is referred to."""
    if isinstance(value, list):
        return set().union(*map(references, value))
    if not isinstance(value, dict):
        return set()
    found = set().union(*map(references, value.values()))
    return found | {value["$ref"]} if isinstance(value.get("$ref"), str) else found


def at(found: Any, reference: str) -> Any:
    """What a reference leads to."""
    for part in reference.removeprefix("#/").split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def check(found: dict[str, Any], validator: jsonschema.Draft7Validator | None = None) -> None:
    """What holds of every document."""
    if validator is not None:
        validator.validate(found)
    for reference in references(found):
        assert at(found, reference) is not None
    for channel in found["channels"].values():
        for binding in channel["bindings"].values():
            assert binding.keys() - {"bindingVersion"}
    for operation in found["operations"].values():
        channel = operation["channel"]["$ref"]
        assert operation["messages"]
        assert all(
            each["$ref"].startswith(f"{channel}/messages/") for each in operation["messages"]
        )
    for schema in found["components"].get("schemas", {}).values():
        jsonschema.Draft7Validator.check_schema(schema)
    silent(dumps(found))
    assert json.loads(dumps(found)) == found
    assert yaml.safe_load(dumps(found, "yaml")) == found


def silent(text: str) -> None:
    """No ARN, no account id, no credentials."""
    assert "arn:" not in text
    assert not re.search(r"(?<!\d)\d{12}(?!\d)", text)
    assert not re.search(r"(?:AKIA|ASIA)[A-Z0-9]{16}", text)
    assert not re.search(r"://[^/\s]*@", text)
    assert "amazonaws.com/" not in text


# --- a service with every feature ---------------------------------------------------------------


def every_feature() -> App:
    app = App("The shop")

    spent = Queue(f"{ARN}spent.fifo")

    @app.subscriber(
        Queue(URL + "orders.fifo", visibility_timeout=60),
        max_attempts=5,
        dead_letter=spent,
        publish=URL + "shipped",
    )
    async def pack(
        order: Order,
        message: Message,
        who: Annotated[str, Depends(tenant)],
        level: Annotated[Level, Header("x-level")],
        count: Annotated[int | None, Header("x-count")],
        out: Annotated[Publisher[Parcel], To("parcels")],
    ) -> Parcel | Retry | None:
        """Packs an order of arn:aws:sqs:eu-west-1:123456789012:orders.fifo.

        It is for account 123456789012.
        """

    @app.subscriber("changes", publish=Topic(f"arn:aws:sns:eu-west-1:{ACCOUNT}:news.fifo"))
    async def change(event: Created | Cancelled) -> list[Reply]:
        return []

    @app.subscriber(
        Queue(
            "created",
            create_if_missing=True,
            attributes={
                "DelaySeconds": "5",
                "MessageRetentionPeriod": "1209600",
                "ReceiveMessageWaitTimeSeconds": "20",
                "VisibilityTimeout": "90",
                "KmsMasterKeyId": f"arn:aws:kms:eu-west-1:{ACCOUNT}:key/secret",
            },
        ),
        batch=10,
    )
    def batch(notes: list[Note]) -> None: ...

    @app.subscriber("raw")
    async def raw(body: bytes) -> None: ...

    @app.subscriber("text")
    async def text(body) -> None: ...

    @app.subscriber("any")
    async def anything(message: Message) -> None: ...

    @app.subscriber("numbers")
    async def numbers(body: dict[str, list[int]]) -> None: ...

    @app.subscriber("pages")
    async def pages(body: Page[Line]) -> None: ...

    @app.subscriber("trees")
    async def trees(body: Tree) -> None: ...

    @app.subscriber("wallets", max_attempts=3, dead_letter="spent", redrive="check")
    async def wallets(body: Wallet) -> None: ...

    router = Router(prefix="crm-")

    @router.subscriber("customers", publish=Topic("audit"))
    async def customers(customer: Customer) -> Customer | Ack:
        return customer

    router.publisher("points", Point)
    app.include_router(router)
    app.publisher(Topic("news.fifo"), Created)
    app.publisher("loose")
    app.publisher("shipped", Parcel)
    return app


def test_a_service_with_every_feature(validator: jsonschema.Draft7Validator) -> None:
    found = document(every_feature())
    check(found, validator)
    assert found["asyncapi"] == "3.0.0"
    assert list(found["channels"]) == sorted(found["channels"])
    assert {
        "news.fifo.topic",
        "crm-audit.topic",
        "crm-customers",
        "crm-points",
        "parcels",
    } <= found["channels"].keys()


def test_the_same_app_gives_the_same_document() -> None:
    assert dumps(document(every_feature())) == dumps(document(every_feature()))


def test_the_order_of_declarations_makes_no_difference() -> None:
    one, other = App("a"), App("a")
    for app, names in ((one, "xyz"), (other, "zyx")):
        for name in names:
            app.publisher(name, Order)
    assert dumps(document(one)) == dumps(document(other))


# --- piece by piece -----------------------------------------------------------------------------


def test_a_queue_says_what_is_known_of_it_and_no_more() -> None:
    found = document(every_feature())
    orders = found["channels"]["orders.fifo"]
    assert orders["address"] == "orders.fifo"
    assert orders["bindings"]["sqs"] == {
        "queue": {
            "name": "orders.fifo",
            "fifoQueue": True,
            "visibilityTimeout": 60,
            "redrivePolicy": {
                "deadLetterQueue": {"name": "spent.fifo"},
                "maxReceiveCount": receive_limit(5),
            },
        },
        "deadLetterQueue": {"name": "spent.fifo", "fifoQueue": True},
        "bindingVersion": "0.2.0",
    }
    created = found["channels"]["created"]["bindings"]["sqs"]["queue"]
    assert created == {
        "name": "created",
        "fifoQueue": False,
        "deliveryDelay": 5,
        "receiveMessageWaitTime": 20,
        "messageRetentionPeriod": 1_209_600,
        "visibilityTimeout": 90,
    }
    assert found["channels"]["raw"]["bindings"]["sqs"]["queue"] == {
        "name": "raw",
        "fifoQueue": False,
    }
    # what is only checked says no number
    policy = found["channels"]["wallets"]["bindings"]["sqs"]["queue"]["redrivePolicy"]
    assert policy == {"deadLetterQueue": {"name": "spent"}}


def test_a_topic_and_its_name() -> None:
    found = document(every_feature())
    assert found["channels"]["news.fifo.topic"]["bindings"]["sns"] == {
        "name": "news.fifo",
        "ordering": {"type": "FIFO"},
        "bindingVersion": "0.1.0",
    }
    assert found["channels"]["crm-audit.topic"]["bindings"]["sns"] == {
        "name": "crm-audit",
        "bindingVersion": "0.1.0",
    }
    assert found["channels"]["crm-audit.topic"]["servers"] == [{"$ref": "#/servers/sns"}]


def test_what_is_received_and_what_is_sent() -> None:
    found = document(every_feature())
    receive = found["operations"]["receive-orders.fifo"]
    assert receive["title"].endswith("pack")
    assert receive["x-max-attempts"] == 5
    assert receive["x-dead-letter-queue"] == "spent.fifo"
    assert receive["description"].startswith("Packs an order of orders.fifo.")
    assert receive["messages"] == [{"$ref": "#/channels/orders.fifo/messages/Order"}]
    assert receive["reply"] == {
        "channel": {"$ref": "#/channels/shipped"},
        "messages": [{"$ref": "#/channels/shipped/messages/Parcel"}],
    }
    assert found["operations"]["send-shipped"]["messages"] == receive["reply"]["messages"]
    changes = found["operations"]["receive-changes"]
    assert [each["$ref"].rpartition("/")[2] for each in changes["messages"]] == [
        "Created",
        "Cancelled",
    ]
    # a Reply says nothing of its body
    assert changes["reply"]["messages"] == [{"$ref": "#/channels/news.fifo.topic/messages/message"}]
    news = found["operations"]["send-news.fifo.topic"]
    assert [each["$ref"].rpartition("/")[2] for each in news["messages"]] == ["message", "Created"]
    assert found["operations"]["send-parcels"]["messages"] == [
        {"$ref": "#/channels/parcels/messages/Parcel"}
    ]
    replies = found["operations"]["receive-crm-customers"]["reply"]["messages"]
    assert replies == [{"$ref": "#/channels/crm-audit.topic/messages/Customer"}]


def test_headers_and_the_correlation_id() -> None:
    message = document(every_feature())["components"]["messages"]["orders.fifo.Order"]
    headers = message["headers"]
    assert headers["required"] == ["x-level", "x-tenant"]
    assert list(headers["properties"]) == ["correlation-id", "x-count", "x-level", "x-tenant"]
    assert headers["properties"]["x-tenant"] == {"type": "string"}
    assert headers["properties"]["x-count"] == {"type": "integer"}
    assert headers["properties"]["x-level"] == {"$ref": "#/components/schemas/Level"}
    assert message["correlationId"] == {"location": "$message.header#/correlation-id"}


def test_bodies_by_their_types() -> None:
    found = document(every_feature())["components"]
    messages, schemas = found["messages"], found["schemas"]
    assert messages["raw.bytes"]["contentType"] == "application/octet-stream"
    assert messages["text.text"]["contentType"] == "text/plain"
    assert "payload" not in messages["any.message"]
    assert messages["numbers.dict-str-list-int"]["payload"]["type"] == "object"
    assert messages["created.Note"]["payload"] == {"$ref": "#/components/schemas/Note"}
    assert schemas["Created"]["properties"]["type"] == {"enum": ["created"]}
    assert schemas["Order"]["description"] == "An order, as the shop takes it."
    assert schemas["Order"]["properties"]["lines"]["items"] == {"$ref": "#/components/schemas/Line"}
    assert schemas["Line"]["properties"]["count"]["exclusiveMinimum"] == 0
    assert schemas["Customer"]["properties"]["home"] == {"$ref": "#/components/schemas/Address"}
    assert schemas["Tree"]["properties"]["below"]["items"] == {"$ref": "#/components/schemas/Tree"}
    assert {"Card", "Cash", "Wallet", "Point", "Parcel"} <= schemas.keys()
    assert "discriminator" not in schemas["Wallet"]["properties"]["paid"]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (tuple[int, str], [1, "a"], [1, "a", 2]),
        (tuple[int, str], [1, "a"], ["a", 1]),
        (tuple[int, ...], [1, 2, 3], ["a"]),
        (tuple[()], [], [1]),
        (Created | Cancelled, {"type": "created", "id": 1}, {"type": "other", "id": 1}),
        (Wallet, {"paid": {"kind": "cash"}}, {"paid": {"kind": "card"}}),
        (Customer, {"name": "a", "home": {"street": "b"}}, {"name": "a", "home": {}}),
        (
            Customer,
            {"name": "a", "home": {"street": "b"}, "point": [1, 2]},
            {"name": "a", "home": {"street": "b"}, "point": [1, 2, 3]},
        ),
        (Level, "low", "middle"),
        (Point, {"x": 1}, {"y": 1}),
        (dict[str, int], {"a": 1}, {"a": "b"}),
        (str, "a", 1),
    ],
)
def test_schemas_say_of_draft_07_what_the_decoders_say(kind: Any, good: Any, bad: Any) -> None:
    found = schemas_of([kind])
    whole = {**found.of(kind), "components": {"schemas": found.components}}
    jsonschema.Draft7Validator.check_schema(whole)
    judge = jsonschema.Draft7Validator(whole)
    assert judge.is_valid(good)
    assert not judge.is_valid(bad)


def test_names_in_properties_are_left_alone() -> None:
    schema = {"properties": {"prefixItems": {"type": "string"}, "discriminator": {"type": "null"}}}
    assert draft7(schema) == schema
    assert draft7({"enum": [f"{ARN}a"]}) == {"enum": [f"{ARN}a"]}


def test_two_classes_of_one_name() -> None:
    def one() -> Any:
        class Same(msgspec.Struct):
            a: int

        return Same

    def other() -> Any:
        class Same(msgspec.Struct):
            b: str

        return Same

    class Same(pydantic.BaseModel):
        c: float

    app = App("same")
    for name, kind in (("one", one()), ("other", other()), ("third", Same)):
        app.publisher(name, kind)
    found = document(app)
    check(found)
    bodies = [
        at(found, each["payload"]["$ref"])["properties"].keys()
        for each in found["components"]["messages"].values()
    ]
    assert bodies == [{"a"}, {"b"}, {"c"}]
    assert len(found["components"]["schemas"]) == 3


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Brand:
    name: str


class Article(typing_extensions.TypedDict):
    colour: Colour
    brand: Brand
    like: list[Article]


class Leaf(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Shelf(msgspec.Struct):
    best: Article


@pytest.mark.parametrize("kinds", [[Article, Leaf[Article]], [Leaf[Article], Shelf, Brand]])
@pytest.mark.parametrize("turned", [False, True])
def test_a_class_that_both_libraries_describe_is_there_once(kinds: list[Any], turned: bool) -> None:
    app = App("once")
    for number, kind in enumerate(reversed(kinds) if turned else kinds):
        app.publisher(f"q{number}", kind)
    found = document(app)
    check(found)
    schemas = found["components"]["schemas"]
    assert schemas.keys() == {
        *("Article", "Brand", "Colour", "Leaf_Article_"),
        *(["Shelf"] if Shelf in kinds else []),
    }
    article = {"$ref": "#/components/schemas/Article"}
    assert schemas["Leaf_Article_"]["properties"]["items"]["items"] == article
    assert schemas["Article"]["properties"]["like"]["items"] == article
    assert schemas["Article"]["properties"]["brand"] == {"$ref": "#/components/schemas/Brand"}


def test_two_classes_of_one_name_in_two_libraries() -> None:
    def other() -> Any:
        class Article(pydantic.BaseModel):
            price: int

        return Article

    namesake = other()
    app = App("names")
    for number, kind in enumerate((Leaf[namesake], Article, Leaf[Article])):
        app.publisher(f"q{number}", kind)
    found = document(app)
    check(found)
    schemas = found["components"]["schemas"]
    articles = [name for name in schemas if "Article" in name and "Leaf" not in name]
    assert len(articles) == 2
    assert "brand" in schemas["Article"]["properties"]
    (name,) = set(articles) - {"Article"}
    assert "price" in schemas[name]["properties"]
    inside = {
        each["properties"]["items"]["items"]["$ref"].rpartition("/")[2]
        for page, each in schemas.items()
        if "Leaf" in page
    }
    assert inside == set(articles)


class Part(pydantic.BaseModel):
    number: int


@dataclass
class Whole:
    part: Part


def test_a_dataclass_with_a_model_inside() -> None:
    found = schemas_of([Whole])
    assert found.of(Whole) == {"$ref": "#/components/schemas/Whole"}
    assert found.components["Whole"]["properties"]["part"] == {"$ref": "#/components/schemas/Part"}
    assert found.components["Part"]["required"] == ["number"]


def test_two_types_of_one_name_in_one_channel() -> None:
    class Same(pydantic.BaseModel):
        c: float

    first = Same

    class Same(pydantic.BaseModel):  # type: ignore[no-redef]
        d: float

    app = App("same")
    app.publisher("a", first)
    app.publisher("a", Same)
    found = document(app)
    check(found)
    assert list(found["channels"]["a"]["messages"]) == ["Same", "Same-2"]


def test_a_type_without_a_schema_is_anything() -> None:
    class Own:
        pass

    class Odd(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        fits: Own | None = None

    app = App("odd")
    app.publisher("odd", Odd)
    found = document(app)
    check(found)
    assert found["components"]["messages"]["odd.Odd"]["payload"] == {}


def test_one_queue_by_name_url_and_arn_is_one_channel() -> None:
    app = App("one")
    app.publisher("orders", Order)
    app.publisher(URL + "orders", Created)
    app.publisher(ARN + "orders", Cancelled)
    found = document(app)
    check(found)
    assert list(found["channels"]) == ["orders"]
    assert list(found["channels"]["orders"]["messages"]) == ["Order", "Created", "Cancelled"]


def test_queues_of_one_name_in_two_places_are_two_channels() -> None:
    app = App("two")
    app.publisher(ARN + "orders", Order)
    app.publisher("arn:aws:sqs:us-east-1:210987654321:orders", Order)
    app.publisher(Topic("orders"), Order)
    found = document(app)
    check(found)
    assert list(found["channels"]) == ["orders", "orders.2", "orders.topic"]
    assert {each["address"] for each in found["channels"].values()} == {"orders"}


# --- the server ---------------------------------------------------------------------------------


def server(app: App | None = None, **options: Any) -> dict[str, Any]:
    app = app or App("a")
    found = document(app, **options)
    check(found)
    return found["servers"]


def test_the_region_is_open_where_nothing_tells_it() -> None:
    assert server()["sqs"]["host"] == "sqs.{region}.amazonaws.com"
    assert "region" in server()["sqs"]["variables"]


def test_the_region_that_is_given_or_that_references_tell() -> None:
    assert server(region="eu-west-1") == {
        "sqs": {"host": "sqs.eu-west-1.amazonaws.com", "protocol": "sqs"}
    }
    assert server(region="cn-north-1")["sqs"]["host"] == "sqs.cn-north-1.amazonaws.com.cn"
    app = App("a")
    app.publisher(URL + "orders")
    assert server(app)["sqs"]["host"] == "sqs.eu-west-1.amazonaws.com"
    app.publisher(Topic("arn:aws:sns:us-east-1:123456789012:news"))
    assert server(app)["sns"]["host"] == "sns.{region}.amazonaws.com"  # they contradict each other


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://127.0.0.1:9324", "127.0.0.1:9324"),
        ("https://sqs.example.com/some/path", "sqs.example.com"),
        ("http://[::1]:9324", "[::1]:9324"),
    ],
)
def test_an_endpoint(url: str, host: str) -> None:
    assert server(endpoint_url=url) == {"sqs": {"host": host, "protocol": "sqs"}}


@pytest.mark.parametrize(
    "options",
    [
        {"region": "no region"},
        {"endpoint_url": "nowhere"},
        {"endpoint_url": "http://user:word@127.0.0.1:9324"},
        {"title": " "},
        {"version": ""},
    ],
)
def test_what_can_not_be_said(options: dict[str, str]) -> None:
    with pytest.raises(UsageError) as raised:
        document(App("a"), **options)
    assert "word" not in str(raised.value)


def test_title_version_and_description() -> None:
    found = document(App("a"), title="Shop", version="2.1", description=f"Reads {ARN}orders.")
    check(found)
    assert found["info"] == {"title": "Shop", "version": "2.1", "description": "Reads orders."}


# --- what is not said -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"from {ARN}orders.fifo, always", "from orders.fifo, always"),
        (f"see {URL}orders", "see orders"),
        ("http://127.0.0.1:9324/000000000000/a.fifo", "a.fifo"),
        ("http://user:word@host/path", "http://host/path"),
        ("key AKIAABCDEFGHIJKLMNOP", "key …"),
        ("account 123456789012.", "account …."),
        ("5901234123457 and 12345678901 are numbers", "5901234123457 and 12345678901 are numbers"),
        ("arn:aws-cn:sns:cn-north-1:123456789012:news:0a1b", "news:0a1b"),
    ],
)
def test_plain_words(text: str, left: str) -> None:
    assert plain(text) == left


def test_what_payload_types_say_in_passing() -> None:
    class Told(msgspec.Struct):
        """Goes to arn:aws:sqs:eu-west-1:123456789012:orders."""

        to: Annotated[str, msgspec.Meta(description=f"like {ARN}orders", examples=[URL + "a"])] = (
            ARN + "orders"
        )

    app = App("told")
    app.publisher("told", Told)
    check(document(app))


# --- writing --------------------------------------------------------------------------------------


def test_yaml_has_no_references_of_its_own() -> None:
    text = dumps(document(every_feature()), "yaml")
    assert not re.search(r"(?m)[:-] [&*]\w", text)
    assert "!!" not in text


@pytest.mark.parametrize("text", ["\x85", "a\u2028b", "a\u2029 b", "a\n\nb", "\ufeff", "'\"# : -"])
def test_texts_are_the_same_in_yaml(text: str) -> None:
    assert yaml.safe_load(dumps({"description": text}, "yaml")) == {"description": text}


def test_yaml_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(UsageError, match=r"pumphouse\[yaml\]"):
        dumps(document(App("a")), "yaml")
    assert dumps(document(App("a")), "json")


def test_no_other_format() -> None:
    with pytest.raises(UsageError, match="json or yaml"):
        dumps({}, "xml")  # type: ignore[arg-type]


# --- apps of all kinds ----------------------------------------------------------------------------


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(app=apps())
def test_whatever_is_declared_the_document_is_valid(
    validator: jsonschema.Draft7Validator, app: App
) -> None:
    found = document(app)
    validator.validate(found)
    for reference in references(found):
        assert at(found, reference) is not None
    assert dumps(document(app)) == dumps(found)
    assert yaml.load(dumps(found, "yaml"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)) == found
    assert len(found["operations"]) >= len(app.subscriptions)
    text = dumps(found)
    assert "arn:" not in text.replace(json.dumps(app.name)[1:-1], "")
    assert ACCOUNT not in text


def test_how_publishers_write_is_said_without_a_secret_and_in_one_order() -> None:
    def app_of(*options: SinkOptions) -> App:
        app = App("shop")
        for each in options:
            app.publisher("orders", dict, **each)
        app.publisher("plain", str)
        return app

    quick: SinkOptions = {"batch_linger": 0, "on_dead_letter": Path("/somewhere/secret")}
    slow: SinkOptions = {"batch_linger": 1.5, "claim_check": ClaimCheck(MemoryBlobStore())}
    found = document(app_of(quick, slow, quick))
    assert found == document(app_of(slow, quick))
    described = found["operations"]["send-orders"]["x-sinks"]
    assert sorted(each["batch"]["linger_seconds"] for each in described) == [0.0, 1.5]
    assert {each["dead_letters"] for each in described} == {True, False}
    assert {each["claim_check_above_bytes"] for each in described} == {None, 65_536}
    assert "somewhere" not in str(found)
    [plain] = found["operations"]["send-plain"]["x-sinks"]
    assert plain["ceilings"]["entries"] == 4_096
