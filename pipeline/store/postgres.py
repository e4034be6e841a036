"""Postgres itself: its address, what its errors mean, and text that it refuses. Whoever connects does it with these."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

import psycopg
from psycopg.types.string import StrDumperUnknown

from pipeline.domain.errors import ConfigError, ServiceUnavailable, TidegateError
from pipeline.domain.text import safe_text

__all__ = ["NOT_THE_SERVICE", "UNAVAILABLE", "Address", "dump_safe_text", "read_address", "translated"]

_START = "start the embedded services: tidegate up; or check TIDEGATE_DATABASE_URL"

# What a failed statement means for the caller, by SQLSTATE or by its class (the first two characters). An error
# without a code never reached the server: the connection failed. A statement that was cancelled, or that waited for a
# lock for as long as the server lets it, may go through the next time. What is in neither table is not about the
# service (a constraint, a deadlock, a bug) and passes as it is.
UNAVAILABLE: dict[str | None, tuple[str, str]] = {
    None: ("does not answer", _START),
    "08": ("closed the connection", _START),
    "28": ("refused the login", "check the user and the password in TIDEGATE_DATABASE_URL"),
    "3D": ("has no such database", "create it, or check TIDEGATE_DATABASE_URL"),
    "53": ("is out of resources", "free what it names (connections, disk or memory) on the Postgres server"),
    "58": ("had a system error", "look at the Postgres server's log"),
    "F0": ("can't read its configuration", "look at the Postgres server's log"),
    "55P03": ("gave up waiting for a lock", "look at who holds it, and at lock_timeout of the role and the database"),
    "57014": (
        "cancelled a statement",
        "look at what Postgres is busy with, and at statement_timeout of the role and the database",
    ),
    "57P01": ("is shutting down", _START),
    "57P02": ("is restarting after a crash", "try again in a moment"),
    "57P03": ("is starting", "try again in a moment"),
    "57P04": ("has dropped the database", "check TIDEGATE_DATABASE_URL"),
    "57P05": ("closed an idle session", "try again"),
    "25P03": ("ended a transaction that stood still", "try again"),
    "25006": ("is read-only", "point TIDEGATE_DATABASE_URL at the primary server"),
    "42P01": ("lacks tables that this version needs", "make them: tidegate db upgrade"),
    "42703": ("lacks columns that this version needs", "make them: tidegate db upgrade"),
}
NOT_THE_SERVICE = frozenset({"27", "2F", "38", "39", "3B", "40", "54", "55", "57", "HV"})
"""Classes of operational errors that say nothing about the service: they pass as they are."""

# A login that the server refuses comes without its code: libpq keeps only the words.
_OF_A_LOGIN = (
    (re.compile(r"too many (?:clients|connections)|connection slots are reserved"), "53"),
    (re.compile(r"authentication failed|no pg_hba\.conf entry|role .* does not exist|not permitted to log in"), "28"),
    (re.compile(r"database .* does not exist"), "3D"),
    (re.compile(r"database system is (?:starting up|not yet accepting|in recovery)"), "57P03"),
    (re.compile(r"database system is shutting down"), "57P01"),
)

# The parts of a URL as SQLAlchemy tells them apart, which takes more in a password than urllib does.
_URL = re.compile(
    r"""(?:postgresql|postgres)(?:\+\w+)?://
        (?:(?P<user>[^:/]*)(?::(?P<password>[^@]*))?@)?
        (?:\[(?P<ipv6>[^/?]+)\]|(?P<host>[^/:?]+))?
        (?::(?P<port>\d*))?
        (?:/(?P<dbname>[^?]*))?
        (?:\?(?P<query>.*))?""",
    re.VERBOSE,
)
_HOST_AND_PORT = re.compile(r"([a-zA-Z0-9.-]+):(\d+)")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is.

    Attributes:
        arguments: libpq's connection parameters, the password among them.
    """

    arguments: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        """For messages: host (or socket folder), port and database, and no user or password."""
        host, port = self.arguments.get("host") or "the local socket", self.arguments.get("port")
        return f"{host}{f':{port}' if port else ''}/{self.arguments.get('dbname', '')}"

    def options(self, *, first: str = "", last: str) -> str:
        """The server's settings: those of the URL override ``first``, and ``last`` overrides them."""
        return " ".join(part for part in (first, self.arguments.get("options", ""), last) if part)


def read_address(url: str) -> Address:
    """Take ``postgresql://user:password@host:port/name?parameter=value`` apart.

    Several hosts stand in the query, as ``host=a,b&port=1,2`` or as ``host=a:1&host=b:2``.

    Raises:
        ConfigError: It is no Postgres URL. The text never holds the password.
    """
    parts = _URL.fullmatch(url.strip())
    if parts is None:
        raise ConfigError(
            "TIDEGATE_DATABASE_URL is no URL of Postgres", "write it as postgresql://user:password@host:5432/name"
        )
    arguments = {name: unquote(parts[name]) for name in ("user", "password", "dbname") if parts[name]}
    if host := parts["ipv6"] or parts["host"]:
        arguments["host"] = host
    if parts["port"]:
        arguments["port"] = parts["port"]
    given: dict[str, list[str]] = {}
    for name, value in parse_qsl(parts["query"] or ""):
        given.setdefault(name, []).append(value)
    arguments |= {name: ",".join(values) for name, values in given.items()}
    return Address(arguments | _ports_beside_hosts(given))


def translated(error: BaseException, where: str) -> TidegateError | None:
    """The error that a caller can act on; None when ``error`` says nothing about the service.

    Args:
        error: psycopg's exception.
        where: The database's name, for the text.
    """
    if not isinstance(error, psycopg.Error):
        return None
    code = error.sqlstate
    if code is None:
        if not isinstance(error, psycopg.OperationalError):
            return None
        code = next((one for words, one in _OF_A_LOGIN if words.search(str(error))), None)
    entry = UNAVAILABLE.get(code) or UNAVAILABLE.get(code[:2] if code else None)
    if entry is None:
        return None
    fact, remedy = entry
    return ServiceUnavailable(f"Postgres at {where} {fact}: {_first_line(error)}", remedy)


def dump_safe_text(connection: psycopg.Connection[Any]) -> None:
    """Make every string that goes to Postgres by this connection storable, whatever way it takes there."""
    connection.adapters.register_dumper(str, _SafeStrDumper)


class _SafeStrDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Any:
        return super().dump(safe_text(obj))


def _ports_beside_hosts(given: Mapping[str, list[str]]) -> dict[str, str]:
    """The ports that stand with the hosts of a query, taken apart from them."""
    hosts = [host for value in given.get("host", ()) for host in value.split(",")]
    apart = [_HOST_AND_PORT.fullmatch(host) for host in hosts]
    if "port" in given or not any(apart):
        return {}
    return {
        "host": ",".join(one[1] if one else host for one, host in zip(apart, hosts, strict=True)),
        "port": ",".join(one[2] if one else "" for one in apart),
    }


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
