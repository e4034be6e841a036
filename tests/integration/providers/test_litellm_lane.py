"""What only litellm does, and every class of exception that it has."""

import asyncio
import inspect
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import FailureKind
from pipeline.failover.target import Target
from pipeline.failover.upstream import Delta
from pipeline.providers import Providers
from pipeline.providers.litellm import load_litellm
from pipeline.providers.litellm_errors import LITELLM_KINDS, failure_of_exception, kind_of_class
from pipeline.providers.redact import Redactor
from tests.integration.providers.conftest import KEY, PAGE, chat_request, failure_of
from tests.integration.providers.raw_host import HEAD, chunk, raw_host
from tests.upstream import dead_port
from tests.upstream.fixtures import UpstreamFactory

K = FailureKind

# litellm's own types: it silences these warnings itself when it is imported, but pytest undoes that.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier"),
    pytest.mark.filterwarnings("ignore:.*Accessing the.*attribute on the instance is deprecated"),
]


def exception_classes() -> Iterator[type[BaseException]]:
    load_litellm()
    from litellm import exceptions

    for value in vars(exceptions).values():
        if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == exceptions.__name__:
            yield value


def test_every_exception_class_of_litellm_is_in_the_table() -> None:
    names = {cls.__name__ for cls in exception_classes()}
    assert names - set(LITELLM_KINDS) == set(), "new in litellm: give it a kind"
    assert set(LITELLM_KINDS) - names == set(), "gone from litellm"


def test_a_subclass_is_met_before_its_base() -> None:
    load_litellm()
    from litellm import exceptions

    class Later(exceptions.ContextWindowExceededError):
        pass

    error = Later("too long", "m", "openai")
    assert isinstance(error, exceptions.BadRequestError)
    assert kind_of_class(error) is K.CONTEXT_OVERFLOW


def made(name: str, status: int | None = None, message: str = "m", cause: BaseException | None = None) -> Any:
    load_litellm()
    from litellm import exceptions

    cls = getattr(exceptions, name)
    arguments: dict[str, Any] = {"message": message, "model": "m", "llm_provider": "x"}
    if "status_code" in inspect.signature(cls.__init__).parameters and status is not None:
        arguments["status_code"] = status
    error = cls(**arguments)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("name", "status", "message", "kind"),
    [
        ("APIError", 403, "no", K.AUTH),
        ("APIError", 409, "no", K.UNKNOWN),
        ("APIError", 529, "busy", K.OVERLOADED),
        ("Timeout", None, "504", K.TIMEOUT),
        ("BadRequestError", None, "bad temperature", K.INVALID_REQUEST),
        ("BadRequestError", None, "Your credit balance is too low", K.QUOTA),
        ("ContextWindowExceededError", None, "long", K.CONTEXT_OVERFLOW),
        ("PaymentRequiredError", None, "pay", K.QUOTA),
        ("RateLimitError", None, "slow down", K.RATE_LIMIT),
        ("InternalServerError", None, "The engine is overloaded", K.OVERLOADED),
        ("InternalServerError", None, "boom", K.SERVER_ERROR),
        ("ServiceUnavailableError", None, "later", K.OVERLOADED),
        ("AuthenticationError", None, "no key", K.AUTH),
        ("APIConnectionError", None, "a bug of its own", K.UNKNOWN),
    ],
)
def test_where_no_response_came_the_class_the_status_and_the_text_decide(
    name: str, status: int | None, message: str, kind: FailureKind
) -> None:
    assert failure_of_exception(made(name, status, message), Redactor(), now=0).kind == kind


def test_params_that_a_target_can_not_take_have_no_response_and_are_invalid_request() -> None:
    assert failure_of_exception(made("UnsupportedParamsError"), Redactor(), now=0).kind == K.INVALID_REQUEST


def test_a_refused_connection_below_an_internal_server_error_is_connect() -> None:
    error = made("InternalServerError", cause=ConnectionRefusedError(111, "Connection refused"))
    found = failure_of_exception(error, Redactor(), now=0)
    assert (found.kind, found.status) == (K.CONNECT, None)
    assert "refused" in found.message


def test_an_exception_that_is_not_litellms_is_unknown() -> None:
    assert failure_of_exception(RuntimeError("?"), Redactor(), now=0).kind == K.UNKNOWN


def test_a_text_of_litellm_is_cleaned_too() -> None:
    error = made("BadRequestError", message=f"OpenAIException - cannot read '{PAGE}' with {KEY}")
    found = failure_of_exception(error, Redactor([PAGE], [KEY]), now=0)
    assert "moon" not in found.message
    assert KEY not in found.message
    assert "litellm" not in found.message


async def test_a_param_that_the_provider_does_not_have_is_dropped_and_told_once(
    providers: Providers, dropped: list[tuple[str, str]]
) -> None:
    url = f"http://127.0.0.1:{dead_port()}"
    target = Target("c@x", "test", "anthropic/claude-sonnet-5", url, params={"seed": 7, "temperature": 0.5})
    for _ in range(2):
        assert (await failure_of(providers, target, chat_request(stream=False))).kind == K.CONNECT
    assert dropped == [("c@x", "seed")]


async def test_a_redirect_carries_no_key_in_another_providers_header_either(providers: Providers) -> None:
    async with raw_host(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as other:
        location = f"http://127.0.0.1:{other.port}/v1/messages".encode()
        async with raw_host(b"HTTP/1.1 307 Moved\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n") as host:
            target = Target("c@x", "test", "anthropic/claude-sonnet-5", host.base_url.removesuffix("/v1"))
            for stream in (True, False):
                found = await failure_of(providers, target, chat_request(stream=stream))
                assert (found.kind, found.status) == (K.NOT_FOUND, 307)
            assert b"x-api-key" in host.requests[0].lower()
        assert other.requests == []


async def test_another_providers_socket_is_closed_with_the_generator(providers: Providers) -> None:
    start = b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":1}}}\n\n'
    text = (
        b"event: content_block_delta\n"
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"gate"}}\n\n'
    )
    async with raw_host(HEAD, chunk(start), chunk(text)) as host:
        target = Target("c@x", "test", "anthropic/claude-sonnet-5", host.base_url.removesuffix("/v1"))
        async with aclosing(providers.stream(target, chat_request())) as events:
            assert await anext(events) == Delta("gate")
        await asyncio.wait_for(host.closed.wait(), 2)


ERRORS = [
    (529, "overloaded_error", "Overloaded", K.OVERLOADED),
    (400, "invalid_request_error", "prompt is too long: 205000 tokens > 200000 maximum", K.CONTEXT_OVERFLOW),
    (400, "invalid_request_error", "Your credit balance is too low to access the API.", K.QUOTA),
    (400, "invalid_request_error", "temperature: must be at most 1", K.INVALID_REQUEST),
    (401, "authentication_error", "invalid x-api-key", K.AUTH),
    (404, "not_found_error", "model: claude-1", K.NOT_FOUND),
    (429, "rate_limit_error", "This request would exceed your rate limit", K.RATE_LIMIT),
    (413, "request_too_large", "Request exceeds the maximum number of bytes", K.INVALID_REQUEST),
    (500, "api_error", "Internal server error", K.SERVER_ERROR),
]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("status", "type_", "text", "kind"), ERRORS)
async def test_another_providers_errors(
    status: int, type_: str, text: str, kind: FailureKind, stream: bool, providers: Providers
) -> None:
    body = json.dumps({"type": "error", "error": {"type": type_, "message": text}}).encode()
    head = f"HTTP/1.1 {status} No\r\nRetry-After: 3\r\nContent-Length: {len(body)}\r\n\r\n"
    async with raw_host(head.encode() + body) as host:
        target = Target("c@x", "test", "anthropic/claude-sonnet-5", host.base_url.removesuffix("/v1"))
        found = await failure_of(providers, target, chat_request(stream=stream))
        assert (found.kind, found.status, found.retry_after_s) == (kind, status, 3.0)
        assert len(host.requests) == 1


async def test_nothing_of_a_failed_request_is_logged_or_printed(
    providers: Providers, upstream: UpstreamFactory, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    host = upstream()
    host.behave("*", "server_error", "bad_request", "reset", "broken_json", "cut")
    target = Target("m@fake", "test", "openai/m", host.base_url, lane="litellm")
    for _ in range(5):
        with pytest.raises(UpstreamFailure):
            async for _event in providers.stream(target, chat_request()):
                pass
    out, err = capfd.readouterr()
    for said in (caplog.text, out, err):
        assert "moon" not in said
        assert KEY not in said
        assert "github.com" not in said


async def test_a_long_row_of_equal_chunks_is_no_failure_of_the_target(
    providers: Providers, upstream: UpstreamFactory
) -> None:
    host = upstream()
    host.answer("m", "-" * 24 * 150)
    target = Target("m@fake", "test", "openai/m", host.base_url, lane="litellm")
    texts = [event async for event in providers.stream(target, chat_request())]
    assert len(texts) == 151


def test_the_import_reads_no_env_file_and_no_network(tmp_path: Any) -> None:
    (tmp_path / ".env").write_text("TIDEGATE_SEEN=yes\n")
    code = (
        "import socket, os\n"
        "def deny(*a, **k): raise AssertionError('network')\n"
        "socket.socket.connect = socket.getaddrinfo = deny\n"
        "from pipeline.providers.litellm import load_litellm\n"
        "load_litellm()\n"
        "assert 'TIDEGATE_SEEN' not in os.environ\n"
    )
    root = str(__import__("pathlib").Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": root, "PATH": ""}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
