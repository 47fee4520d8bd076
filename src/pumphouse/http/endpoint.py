"""Where requests go and for which region they are signed, as botocore's configuration says.

An endpoint URL wins over everything: the argument, `AWS_ENDPOINT_URL_SQS`, `AWS_ENDPOINT_URL`, or
the profile's (`AWS_IGNORE_CONFIGURED_ENDPOINT_URLS` turns all but the argument off). Without one,
botocore's endpoint rules make the host from the region, FIPS and dual-stack settings included. The
host of a queue URL is never used: the URL is a parameter. It tells the region where nothing else
does: after the argument, the environment and the profile.

botocore asks the environment first and its files second. Where the environment has the answer, or
there are no files, the answer is known here without botocore, whose import takes longer than the
rest of a start; for everything else it is loaded. Reading blocks, so the client does it in a
thread.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pumphouse.errors import ConfigError, UsageError
from pumphouse.http.dial import Origin
from pumphouse.protocol.names import is_loopback, region_of_host
from pumphouse.protocol.sigv4 import host_header

if TYPE_CHECKING:
    from botocore.session import Session

FALLBACK_REGION = "us-east-1"
"""What requests to an endpoint URL are signed for where nothing tells a region."""

_REGION = re.compile(r"(?![0-9]+$)(?!-)[a-zA-Z0-9-]{1,63}(?<!-)")
_ORDINARY = re.compile(r"(us|eu|ap|sa|ca|me|af|il|mx)-[a-z]+-[0-9]+")  # the partition `aws`

_NAMES = {
    "ca_bundle": "AWS_CA_BUNDLE",
    "data_path": "AWS_DATA_PATH",
    "ignore_configured_endpoint_urls": "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "region": "AWS_DEFAULT_REGION",
    "use_dualstack_endpoint": "AWS_USE_DUALSTACK_ENDPOINT",
    "use_fips_endpoint": "AWS_USE_FIPS_ENDPOINT",
}
"""Variables of botocore's configuration, and their names in the environment."""


class Endpoint:
    """A service at its place; equal to no other, so that it can be a key."""

    __slots__ = ("host_header", "origin", "path", "region", "service")

    def __init__(self, service: str, url: str, region: str) -> None:
        parts = check_endpoint_url(url)
        self.service = service
        self.region = region
        self.origin = parts
        self.path = urlsplit(url).path or "/"
        self.host_header = host_header(url)

    def __repr__(self) -> str:
        return f"<Endpoint {self.service} {self.region} at {self.origin}>"


def check_endpoint_url(url: str) -> Origin:
    """The origin of an endpoint URL. Raises `UsageError`, which repeats no user or password."""
    try:
        parts = urlsplit(url)
        port = parts.port
        host = parts.hostname or ""
        host.encode("idna")  # as the socket does, which has no error of its own for it
    except (ValueError, TypeError, AttributeError):
        raise UsageError("endpoint_url is no URL, or its host or its port is none") from None
    if "@" in url:
        raise UsageError("endpoint_url holds a user; credentials have an argument of their own")
    if parts.query or parts.fragment:
        raise UsageError("endpoint_url can't have a query or a fragment")
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise UsageError(f"endpoint_url has to be http://host[:port] or https://…, not {url!r}")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise UsageError(f"endpoint_url holds a character that has to be encoded: {url!r}")
    return Origin(parts.scheme, host, port or (443 if parts.scheme == "https" else 80))


def check_region(region: str, source: str = "") -> str:
    """The region, as it is. Raises `UsageError`, which says where it came from."""
    if not isinstance(region, str) or not _REGION.fullmatch(region):
        origin = source and f" of {source}"
        raise UsageError(f"region {region!r}{origin} can't be one; it looks like eu-west-1")
    return region


def without_fips(region: str) -> str:
    """The region of an old name for its FIPS endpoint, which is what requests are signed for."""
    return region.replace("fips-", "").replace("-fips", "")


@lru_cache(maxsize=4096)
def region_hint(reference: str) -> str:
    """The region that a queue URL or an ARN names, or ""."""
    if reference.startswith("arn:"):
        parts = reference.split(":")
        return parts[3] if len(parts) > 3 else ""
    try:
        return region_of_host(urlsplit(reference).hostname or "")
    except ValueError:
        return ""


def _files() -> bool:
    """Whether botocore would find a file to read."""
    places = (
        os.environ.get("AWS_CONFIG_FILE", "~/.aws/config"),
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
    )
    return any(os.path.isfile(os.path.expanduser(os.path.expandvars(each))) for each in places)


def _source(region: str) -> str:
    """Where botocore found the region."""
    names = ("AWS_REGION", "AWS_DEFAULT_REGION")
    return next((name for name in names if os.environ.get(name) == region), "the profile")


class Configuration:
    """Region, endpoints and certificates from arguments first and botocore's configuration second.

    The methods block (files, the import of botocore) and may be called from any thread.
    """

    def __init__(
        self, *, region: str | None, endpoint_url: str | None, profile: str | None
    ) -> None:
        self._region = region
        self._endpoint_url = endpoint_url
        self._profile = profile
        self._session: Session | None = None
        self._rules: dict[str, Any] = {}
        self._lock = threading.RLock()

    def after_fork(self) -> None:
        """Forget a lock that a thread of the parent may have held."""
        self._lock = threading.RLock()

    def new_session(self) -> None:
        """Read everything anew the next time, credentials included."""
        with self._lock:
            self._session = None

    @property
    def session(self) -> Session:
        """botocore's session. Raises `ConfigError` for a profile that does not exist."""
        with self._lock:
            if self._session is None:
                import botocore.session
                from botocore.exceptions import BotoCoreError

                try:
                    session = botocore.session.Session(profile=self._profile)
                    session.get_scoped_config()
                    if region := os.environ.get("AWS_REGION"):  # botocore does not know it
                        session.set_config_variable("region", region)
                except BotoCoreError as error:
                    raise ConfigError(str(error)) from None
                self._session = session
            return self._session

    @property
    def names_profile(self) -> bool:
        """Whether a profile is named, which has to exist whatever the environment says."""
        named = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
        return self._profile is not None or any(name in os.environ for name in named)

    def _first(self, of_environment: str | None, by_botocore: Callable[[], Any]) -> Any:
        """What botocore finds first, which is loaded only where its files have a say."""
        if not self.names_profile and (of_environment is not None or not _files()):
            return of_environment
        return by_botocore()

    def variable(self, name: str) -> Any:
        """A variable of botocore's configuration; None where it is not set."""
        found = os.environ.get(_NAMES[name])
        if name == "region":
            found = os.environ.get("AWS_REGION") or found  # which botocore does not know
        return self._first(found, lambda: self.session.get_config_variable(name))

    def _is_on(self, name: str) -> bool:
        return str(self.variable(name)).lower() == "true"

    def region(self) -> str | None:
        """The region of the argument, the environment or the profile, or None. Raises `UsageError`
        for what can't be one."""
        if found := self._region or self.variable("region"):
            check_region(found, "" if self._region else _source(found))
        return found or None

    def endpoint(self, service: str, hint: str) -> tuple[Endpoint, bool]:
        """The endpoint of a service, and whether it stays the same for every hint.

        `hint` is the region that the operation itself names, or "". Raises `ConfigError` when there
        is no region, and `UsageError` for one that can't be.
        """
        if hint:
            check_region(hint, "the URL or ARN of a queue or topic")
        with self._lock:
            url = self._endpoint_url or self._configured_url(service)
            if url:
                origin = check_endpoint_url(url)
                own = self.region() or region_of_host(origin.host)
                signed = without_fips(own or hint or FALLBACK_REGION)
                return Endpoint(service, url, signed), bool(own)
            if (region := self.region()) is not None:
                return self._at(service, region), True
            if not hint:
                raise ConfigError(
                    "no region: set AWS_REGION, name one in the profile, or give --region (in "
                    "Python region=…)"
                )
            return self._at(service, hint), False

    @property
    def on_this_machine(self) -> bool:
        """Whether SQS is at an endpoint URL of loopback."""
        with self._lock:
            url = self._endpoint_url or self._configured_url("sqs")
        return is_loopback(check_endpoint_url(url).host) if url else False

    def _configured_url(self, service: str) -> str | None:
        if self._is_on("ignore_configured_endpoint_urls"):
            return None
        names = (f"AWS_ENDPOINT_URL_{service.upper()}", "AWS_ENDPOINT_URL")
        found = next(filter(None, map(os.environ.get, names)), None)
        url: str | None = self._first(found, lambda: self._url_of_botocore(service))
        return url

    def _url_of_botocore(self, service: str) -> Any:
        from botocore.configprovider import ConfiguredEndpointProvider
        from botocore.exceptions import BotoCoreError

        session = self.session
        provider = ConfiguredEndpointProvider(
            full_config=session.full_config,
            scoped_config=session.get_scoped_config(),
            client_name=service,
        )
        try:
            return provider.provide()
        except BotoCoreError as error:  # the profile names services that are not there
            raise ConfigError(str(error)) from None

    def _at(self, service: str, region: str) -> Endpoint:
        """The endpoint that botocore's rules make for a region (`fips-…` ones are old names)."""
        plain = without_fips(region)
        fips = plain != region or self._is_on("use_fips_endpoint")
        dual_stack = self._is_on("use_dualstack_endpoint")
        ordinary = _ORDINARY.fullmatch(plain) and not (fips or dual_stack)
        if ordinary and not self._has_rules_of_its_own():
            return Endpoint(service, f"https://{service}.{plain}.amazonaws.com", plain)

        from botocore.endpoint_provider import EndpointProvider
        from botocore.exceptions import BotoCoreError

        try:
            if (rules := self._rules.get(service)) is None:
                loader = self.session.get_component("data_loader")
                rules = self._rules[service] = EndpointProvider(
                    ruleset_data=loader.load_service_model(service, "endpoint-rule-set-1"),
                    partition_data=loader.load_data("partitions"),
                )
            found = rules.resolve_endpoint(Region=plain, UseFIPS=fips, UseDualStack=dual_stack)
        except BotoCoreError as error:
            raise ConfigError(f"no endpoint for {service} in {region}: {error}") from None
        return Endpoint(service, str(found.url), plain)

    def _has_rules_of_its_own(self) -> bool:
        """Whether botocore may read its rules from a folder of this machine."""
        models = os.path.expanduser("~/.aws/models")
        return self.variable("data_path") is not None or os.path.isdir(models)

    def ca_bundle(self) -> str | None:
        """`AWS_CA_BUNDLE`, or the profile's `ca_bundle`."""
        found: str | None = self.variable("ca_bundle")
        return found
