"""What litellm's exceptions mean, read without importing litellm.

Its classes say little: a refused connection, a login page and a broken body are all ``InternalServerError`` 500. What
happened stands further down the chain of causes: the response that came, the socket's error, the parser's. The class
decides only where nothing else speaks (``LITELLM_KINDS``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import FailureKind
from pipeline.providers.classify import classify, failure_of
from pipeline.providers.complaint import Complaint, complaint_of
from pipeline.providers.http import cut, reason_of
from pipeline.providers.redact import Redactor
from pipeline.providers.sessions import AnswerTooLargeError, RedirectRefusedError

__all__ = ["LITELLM_KINDS", "ended_early", "failure_of_exception", "kind_of_class"]

_K = FailureKind

LITELLM_KINDS: Mapping[str, FailureKind | None] = MappingProxyType(
    {
        "APIConnectionError": _K.CONNECT,
        "APIError": None,
        "APIResponseValidationError": _K.INVALID_OUTPUT,
        "AuthenticationError": _K.AUTH,
        "BadGatewayError": _K.SERVER_ERROR,
        "BadRequestError": None,
        "BlockedPiiEntityError": _K.CONTENT_POLICY,
        "BudgetExceededError": _K.QUOTA,
        "CallerCredentialAuthenticationError": _K.AUTH,
        "CallerCredentialRateLimitError": _K.RATE_LIMIT,
        "ContentPolicyViolationError": _K.CONTENT_POLICY,
        "ContextWindowExceededError": _K.CONTEXT_OVERFLOW,
        "EndpointNotSupportedByModelError": _K.NOT_FOUND,
        "GuardrailRaisedException": _K.CONTENT_POLICY,
        "ImageFetchError": _K.INVALID_REQUEST,
        "InternalServerError": None,
        "InvalidRequestError": None,
        "JSONSchemaValidationError": _K.INVALID_OUTPUT,
        "LiteLLMUnknownProvider": _K.NOT_FOUND,
        "MalformedRequestFieldError": _K.INVALID_REQUEST,
        "MidStreamFallbackError": None,
        "MockException": None,
        "ModelNotMappedError": _K.UNKNOWN,
        "ModifyResponseException": _K.CONTENT_POLICY,
        "NotFoundError": _K.NOT_FOUND,
        "OpenAIError": None,
        "PaymentRequiredError": _K.QUOTA,
        "PermissionDeniedError": None,
        "RateLimitError": None,
        "RejectedRequestError": _K.CONTENT_POLICY,
        "SensitiveDataRouteException": _K.CONTENT_POLICY,
        "ServiceUnavailableError": None,
        "Timeout": _K.TIMEOUT,
        "UnprocessableEntityError": None,
        "UnsupportedEndpointError": _K.NOT_FOUND,
        "UnsupportedParamsError": _K.INVALID_REQUEST,
        "VectorStoreSearchError": _K.INVALID_REQUEST,
    }
)
"""Kinds by the name of litellm's exception class (litellm is not imported here); None: status, code and text decide.

Looked up along the class's MRO, so a subclass is met before its base, and one that litellm adds later falls back on it.
"""

# By name, along the MRO: httpx, httpcore, aiohttp and botocore each have their own.
_NETWORK = frozenset(
    {
        "ConnectError",
        "ConnectionError",
        "ClientConnectionError",
        "ClientPayloadError",
        "EndpointConnectionError",
        "NetworkError",
        "ProtocolError",
        "ProxyError",
        "SSLError",
        "gaierror",
    }
)
_TIMEOUTS = frozenset({"TimeoutException", "TimeoutError", "APITimeoutError"})
_NO_URL = frozenset({"UnsupportedProtocol", "InvalidURL", "NonHttpUrlClientError", "LocationParseError"})
# What reading an answer raises when it is none: of JSON, of pydantic's models, of litellm's transformations.
_UNREADABLE = frozenset({"JSONDecodeError", "ValidationError", "KeyError", "IndexError", "TypeError", "AttributeError"})
_NO_ANSWER = re.compile(r"Empty or invalid response from LLM endpoint|Invalid response object")
_DECIDED_BY_REQUEST = frozenset({FailureKind.CONTEXT_OVERFLOW, FailureKind.CONTENT_POLICY})
_OPEN = frozenset({FailureKind.INVALID_REQUEST, FailureKind.SERVER_ERROR, FailureKind.UNKNOWN})
_PREFIX = re.compile(r"^(?:litellm\.\w+: |\w+(?:Error|Exception|Timeout): |Timeout Error: |\w*Exception - )+")
_MAX_LINKS = 12


def kind_of_class(error: BaseException) -> FailureKind | None:
    """The table's kind for the exception's class or its nearest base in the table; None when that leaves it open."""
    for cls in type(error).__mro__:
        if cls.__name__ in LITELLM_KINDS:
            return LITELLM_KINDS[cls.__name__]
    return None


def ended_early(error: BaseException) -> bool:
    """Whether litellm complains that a stream ended properly but without a finish_reason."""
    return any(isinstance(link, StopAsyncIteration) for link in _chain(error))


def failure_of_exception(
    error: BaseException, redactor: Redactor, *, now: float, after_content: bool = False
) -> UpstreamFailure:
    """The failure that an exception out of a litellm call stands for.

    Args:
        error: What litellm, or something below it, raised.
        redactor: Of the request.
        now: Seconds since the epoch, for dates in ``Retry-After``.
        after_content: Content had come, so a broken connection is a cut stream and no text is quoted.
    """
    links = list(_chain(error))
    refused = _refused_by_us(links, redactor)
    if refused is not None:
        return refused
    by_class = kind_of_class(error)
    stated = _stated(links, redactor, now=now, quote=not after_content)
    if stated is not None:
        if stated.kind in _OPEN and by_class in _DECIDED_BY_REQUEST:
            return UpstreamFailure(by_class, stated.message, stated.status, stated.retry_after_s)
        return stated
    if _any_named(links, _NO_URL):
        return UpstreamFailure(FailureKind.NOT_FOUND, "the target's base_url is no http(s) URL")
    if _any_named(links, _TIMEOUTS):
        return UpstreamFailure(FailureKind.TIMEOUT, "the client's own timeout")
    if _any_named(links, _NETWORK):
        if after_content or _any_named(links, frozenset({"ClientPayloadError"})):
            return cut(links[-1], after_content=after_content)
        return UpstreamFailure(FailureKind.CONNECT, reason_of(links[-1]))
    if _any_named(links[1:], _UNREADABLE) or any(_NO_ANSWER.search(str(link)) for link in links):
        return UpstreamFailure(FailureKind.INVALID_OUTPUT, "the body could not be read as an answer", 200)
    return _by_class(error, by_class, redactor, quote=not after_content)


def _refused_by_us(links: list[BaseException], redactor: Redactor) -> UpstreamFailure | None:
    """What the guarded transport would not do."""
    for link in links:
        if isinstance(link, RedirectRefusedError):
            return UpstreamFailure(FailureKind.NOT_FOUND, redactor.message(str(link)), link.status)
        if isinstance(link, AnswerTooLargeError):
            return UpstreamFailure(FailureKind.INVALID_OUTPUT, str(link), 200)
    return None


def _by_class(
    error: BaseException, by_class: FailureKind | None, redactor: Redactor, *, quote: bool
) -> UpstreamFailure:
    text = redactor.clean(_PREFIX.sub("", str(getattr(error, "message", "") or error)))
    status = getattr(error, "status_code", None)
    status = status if isinstance(status, int) else None
    kind = by_class
    if kind is FailureKind.CONNECT:  # of the class, but there is no trace of a connection in it
        kind = FailureKind.UNKNOWN
    if kind is None:
        kind = classify(status, _codes(error), text) if _known(error) else FailureKind.UNKNOWN
    quoted = text if quote and kind is not FailureKind.INVALID_OUTPUT else ""
    return UpstreamFailure(kind, redactor.joined(type(error).__name__, quoted), status)


def _stated(links: list[BaseException], redactor: Redactor, *, now: float, quote: bool) -> UpstreamFailure | None:
    """From the response that the upstream gave, or from the error event in its stream."""
    for link in reversed(links):
        names = {cls.__name__ for cls in type(link).__mro__}
        response = getattr(link, "response", None)
        if "HTTPStatusError" in names or (_module(link) == "openai" and "APIStatusError" in names):
            status = getattr(response, "status_code", None)
            if isinstance(status, int):
                headers: Mapping[str, str] = dict(getattr(response, "headers", None) or {})
                return failure_of(_complaint(link, response), redactor, status=status, headers=headers, now=now)
    for link in links:
        body = getattr(link, "body", None)
        if _module(link) == "openai" and isinstance(body, Mapping):
            return failure_of(complaint_of(body), redactor, quote=quote)
    return None


def _complaint(link: BaseException, response: Any) -> Complaint:
    text = getattr(link, "text", None)
    if not isinstance(text, str):
        try:
            text = response.text
        except Exception:  # an unread or undecodable body; each HTTP library has its own class for it
            text = ""
    return complaint_of(text)


def _codes(error: BaseException) -> tuple[str, ...]:
    return tuple(code for code in (getattr(error, "code", None), getattr(error, "type", None)) if isinstance(code, str))


def _known(error: BaseException) -> bool:
    return any(cls.__name__ in LITELLM_KINDS for cls in type(error).__mro__)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and its causes, outermost first."""
    seen: set[int] = set()
    todo: list[BaseException] = [error]
    while todo and len(seen) < _MAX_LINKS:
        link = todo.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        below = (getattr(link, "original_exception", None), link.__cause__, link.__context__)
        todo += [cause for cause in below if isinstance(cause, BaseException)]


def _any_named(links: list[BaseException], names: frozenset[str]) -> bool:
    return any(cls.__name__ in names for link in links for cls in type(link).__mro__)


def _module(link: BaseException) -> str:
    return type(link).__module__.partition(".")[0]
