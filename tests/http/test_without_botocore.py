"""What the environment alone decides is answered without botocore, and as botocore answers it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pumphouse.account import Account
from pumphouse.errors import ConfigError
from pumphouse.http import endpoint
from pumphouse.http.credentials import BotocoreChain
from pumphouse.http.endpoint import Configuration
from pumphouse.protocol.operations import CreateQueue
from support.aws_settings import aws_files  # noqa: F401
from support.serving import serving

VARIABLES = {
    "AWS_REGION": ["", "eu-west-1", "cn-north-1"],
    "AWS_DEFAULT_REGION": ["", "eu-north-1", "us-gov-west-1", "no region"],
    "AWS_ENDPOINT_URL": [
        "",
        "http://127.0.0.1:1",
        "https://vpce-a.sqs.eu-west-3.vpce.amazonaws.com",
    ],
    "AWS_ENDPOINT_URL_SQS": ["", "http://127.0.0.1:2", "none"],
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": ["", "true", "TRUE", "no"],
    "AWS_USE_FIPS_ENDPOINT": ["", "True", "1"],
    "AWS_USE_DUALSTACK_ENDPOINT": ["", "true", "false"],
    "AWS_CA_BUNDLE": ["", "/a/bundle.pem"],
    "AWS_PROFILE": ["", "default", "other", "nobody"],
    "AWS_DEFAULT_PROFILE": ["", "other", "nobody"],
    "AWS_ACCESS_KEY_ID": ["", "A", "AKID"],
    "AWS_SECRET_ACCESS_KEY": ["", "secret"],
    "AWS_SECURITY_TOKEN": ["", "older"],
    "AWS_SESSION_TOKEN": ["", "token"],
    "AWS_CREDENTIAL_EXPIRATION": ["", "2001-02-03T04:05:06Z", "2099-02-03T04:05:06Z", "never"],
}

CONFIGS = [
    None,
    None,
    "",
    "[default]\nregion = eu-west-2\nca_bundle = /of/the/file.pem\nuse_fips_endpoint = true\n"
    "[profile other]\nendpoint_url = http://127.0.0.1:3\nignore_configured_endpoint_urls = true\n",
    "[default]\nendpoint_url = http://127.0.0.1:4\nservices = mine\nuse_dualstack_endpoint = true\n"
    "[services mine]\nsqs =\n  endpoint_url = http://127.0.0.1:5\n[profile other]\nregion = a-b\n",
    "[default]\nservices = missing\nignore_configured_endpoint_urls = true\n"
    "[profile other]\nservices = missing\n",
]
CREDENTIALS = [
    None,
    None,
    "[default]\naws_access_key_id = F\naws_secret_access_key = G\nregion = eu-central-1\n"
    "[other]\naws_access_key_id = O\naws_secret_access_key = P\naws_session_token = Q\n",
]

NO_ARGUMENTS: dict[str, str | None] = {"region": None, "endpoint_url": None, "profile": None}

environments = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in VARIABLES.items()}
)


@pytest.fixture(autouse=True)
def _home(aws_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("HOME", str(aws_files))
    handlers = "_register_builtin_handlers"  # of clients, which nobody makes here; they take long
    monkeypatch.setattr(botocore.session.Session, handlers, lambda *_: None)


_rules: dict[str, Any] = {}  # which take longest to read, and are the same for all examples


def answers(arguments: dict[str, str | None], hint: str) -> list[Any]:
    """Everything that is asked of a configuration; what goes wrong is an answer as well."""
    configuration = Configuration(**arguments)
    configuration._rules = _rules
    chain = BotocoreChain(configuration)

    def where() -> object:
        found, fixed = configuration.endpoint("sqs", hint)
        return found.origin, found.path, found.host_header, found.region, fixed

    questions: list[Callable[[], Any]] = [
        where,
        configuration.region,
        configuration.ca_bundle,
        lambda: configuration.on_this_machine,
        chain,
        chain,
    ]
    return [_answer(question) for question in questions]


def _answer(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except Exception as error:
        return type(error), str(error)


def leave_everything_to_botocore(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Configuration, "names_profile", True)
    patch.setattr(endpoint, "_ORDINARY", re.compile("none"))


@given(
    environment=environments,
    config=st.sampled_from(CONFIGS),
    shared=st.sampled_from(CREDENTIALS),
    region=st.sampled_from([None, None, "sa-east-1", "fips-us-east-1"]),
    endpoint_url=st.sampled_from([None, None, "http://127.0.0.1:9324/path"]),
    profile=st.sampled_from([None, None, "other", "nobody", ""]),
    hint=st.sampled_from(["", "ap-south-1"]),
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_answer_is_botocores(
    aws_files: Path,  # noqa: F811
    environment: dict[str, str],
    config: str | None,
    shared: str | None,
    region: str | None,
    endpoint_url: str | None,
    profile: str | None,
    hint: str,
) -> None:
    arguments = {"region": region, "endpoint_url": endpoint_url, "profile": profile}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        for name, text in (("config", config), ("credentials", shared)):
            (aws_files / name).unlink(missing_ok=True)
            if text is not None:
                (aws_files / name).write_text(text)
        found = answers(arguments, hint)
        leave_everything_to_botocore(patch)
        assert found == answers(arguments, hint)


@pytest.mark.parametrize("service", ["sqs", "sns", "s3"])
def test_every_region_is_where_botocores_rules_have_it(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = botocore.session.Session().get_component("data_loader").load_data("partitions")
    regions = {region for partition in data["partitions"] for region in partition["regions"]}
    regions |= {"us-moon-7", "eu-isoe-north-2", "us-gov-north-1", "eusc-de-west-9", "zz-none-1"}

    def places() -> dict[str, Any]:
        configuration = Configuration(**NO_ARGUMENTS)
        return {
            region: _answer(lambda region=region: configuration.endpoint(service, region)[0].origin)
            for region in regions
        }

    found = places()
    leave_everything_to_botocore(monkeypatch)
    assert found == places()


def test_rules_in_a_folder_of_this_machine_are_botocores(
    aws_files: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = {
        "version": "1.0",
        "parameters": {},
        "rules": [{"conditions": [], "type": "endpoint", "endpoint": {"url": "https://mine.test"}}],
    }
    folder = aws_files / "models" / "sqs" / "2012-11-05"
    folder.mkdir(parents=True)
    (folder / "endpoint-rule-set-1.json").write_text(json.dumps(rules))
    monkeypatch.setenv("AWS_DATA_PATH", str(aws_files / "models"))
    assert Configuration(**NO_ARGUMENTS).endpoint("sqs", "eu-west-1")[0].origin.host == "mine.test"
    monkeypatch.delenv("AWS_DATA_PATH")


def test_services_that_are_not_there_are_told(aws_files: Path) -> None:  # noqa: F811
    (aws_files / "config").write_text("[default]\nservices = missing\n")
    with pytest.raises(ConfigError, match="missing"):
        Configuration(**NO_ARGUMENTS).endpoint("sqs", "eu-west-1")


# --- what is loaded -------------------------------------------------------------------------------

_KEYS = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "B"}

_CALL = """
import asyncio, pumphouse
from pumphouse.protocol.operations import ListQueues

async def main():
    async with pumphouse.connect() as backend:
        assert (await backend.execute(ListQueues())).queue_urls

asyncio.run(main())
"""
_COMMAND = """
from pumphouse.cli import run_command
assert run_command({arguments!r}) == 0
"""
_LAMBDA = """
from pumphouse.http.credentials import BotocoreChain
from pumphouse.http.endpoint import Configuration
configuration = Configuration(region=None, endpoint_url=None, profile=None)
endpoint, fixed = configuration.endpoint("sqs", "")
assert (endpoint.origin.host, fixed) == ("sqs.eu-west-1.amazonaws.com", True)
assert configuration.ca_bundle() is None
assert BotocoreChain(configuration)().session_token == "T"
"""


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with serving(Account()) as served:
        served.run(served.backend.execute(CreateQueue("work")))
        yield served.url


def run(code: str, environment: dict[str, str], input: str = "") -> set[str]:  # noqa: A002
    """The packages that a fresh interpreter has loaded after some code."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **_KEYS, **environment},
        input=input,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_a_connection_that_the_environment_describes_loads_no_botocore(served: str) -> None:
    loaded = run(_CALL, {"AWS_ENDPOINT_URL_SQS": served, "AWS_REGION": "us-east-1"})
    assert not loaded & {"botocore", "pydantic", "click", "rich"}


def test_what_lambda_says_is_enough() -> None:
    environment = {"AWS_REGION": "eu-west-1", "AWS_SESSION_TOKEN": "T"}
    assert not run(_LAMBDA, environment) & {"botocore", "pydantic", "click", "rich"}


@pytest.mark.parametrize(
    "arguments", [["queues"], ["send", "work"], ["peek", "work"]], ids=lambda given: given[0]
)
def test_a_command_for_an_endpoint_loads_no_botocore(served: str, arguments: list[str]) -> None:
    code = _COMMAND.format(arguments=[*arguments, "--endpoint-url", served])
    assert not run(code, {}, input='{"a": 1}\n') & {"botocore", "pydantic", "uvicorn"}
