"""From what an upstream answered to a failure kind: the one place that reads statuses, codes and texts.

Codes come before texts, and texts decide only where providers have no code for the fact: an oversized prompt, a
refused one, and the bad keys, empty balances and retired models that some report as a plain 400. Both lanes end here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import FailureKind
from pipeline.providers.complaint import Complaint
from pipeline.providers.redact import Redactor
from pipeline.providers.retry_after import retry_after_s

__all__ = ["CODES", "STATUSES", "TEXTS", "classify", "failure_of"]

_K = FailureKind

STATUSES: Mapping[int, FailureKind] = MappingProxyType(
    {
        400: _K.INVALID_REQUEST,
        401: _K.AUTH,
        402: _K.QUOTA,
        403: _K.AUTH,
        404: _K.NOT_FOUND,
        405: _K.NOT_FOUND,  # the base_url leads to something that is no such API
        408: _K.TIMEOUT,
        410: _K.NOT_FOUND,
        411: _K.INVALID_REQUEST,
        413: _K.INVALID_REQUEST,
        414: _K.INVALID_REQUEST,
        415: _K.INVALID_REQUEST,
        422: _K.INVALID_REQUEST,
        424: _K.SERVER_ERROR,  # TGI: the model behind the router failed
        429: _K.RATE_LIMIT,
        431: _K.INVALID_REQUEST,
        503: _K.OVERLOADED,
        504: _K.TIMEOUT,
        529: _K.OVERLOADED,
    }
)
"""Kinds by status where no code or text says more. Other 5xx are ``server_error``, redirects ``not_found``."""

CODES: Mapping[str, FailureKind] = MappingProxyType(
    {
        # The request is too long.
        "context_length_exceeded": _K.CONTEXT_OVERFLOW,
        "context_window_exceeded": _K.CONTEXT_OVERFLOW,
        "context_length_error": _K.CONTEXT_OVERFLOW,
        "exceed_context_size_error": _K.CONTEXT_OVERFLOW,  # llama.cpp
        "model_max_length_exceeded": _K.CONTEXT_OVERFLOW,
        "model_context_window_exceeded": _K.CONTEXT_OVERFLOW,
        # The request is refused for what it says.
        "content_filter": _K.CONTENT_POLICY,
        "content_policy_violation": _K.CONTENT_POLICY,
        "responsibleaipolicyviolation": _K.CONTENT_POLICY,  # Azure
        "data_inspection_failed": _K.CONTENT_POLICY,  # DashScope
        "datainspectionfailed": _K.CONTENT_POLICY,
        "moderation_blocked": _K.CONTENT_POLICY,
        "image_content_policy_violation": _K.CONTENT_POLICY,
        "sensitive_words_detected": _K.CONTENT_POLICY,
        "guardrail_intervened": _K.CONTENT_POLICY,  # Bedrock
        # Money.
        "insufficient_quota": _K.QUOTA,
        "insufficient_balance": _K.QUOTA,
        "insufficient_credits": _K.QUOTA,
        "insufficient_user_quota": _K.QUOTA,
        "billing_hard_limit_reached": _K.QUOTA,
        "billing_not_active": _K.QUOTA,
        "billing_error": _K.QUOTA,  # Anthropic
        "arrearage": _K.QUOTA,  # DashScope
        "exceeded_current_quota_error": _K.QUOTA,  # Moonshot
        "payment_required": _K.QUOTA,
        # Keys and rights.
        "invalid_api_key": _K.AUTH,
        "invalidapikey": _K.AUTH,
        "incorrect_api_key": _K.AUTH,
        "api_key_invalid": _K.AUTH,  # Google
        "wrong_api_key": _K.AUTH,
        "invalid_authentication": _K.AUTH,
        "invalid_authentication_error": _K.AUTH,
        "authentication_error": _K.AUTH,
        "account_deactivated": _K.AUTH,
        "permission_error": _K.AUTH,
        "permission_denied": _K.AUTH,
        "unauthenticated": _K.AUTH,
        "unauthorized": _K.AUTH,
        "accessdeniedexception": _K.AUTH,
        "unrecognizedclientexception": _K.AUTH,
        "expiredtokenexception": _K.AUTH,
        "unsupported_country_region_territory": _K.AUTH,
        # The model or the address.
        "model_not_found": _K.NOT_FOUND,
        "model_not_available": _K.NOT_FOUND,
        "model_decommissioned": _K.NOT_FOUND,  # Groq, as a 400
        "model_deprecated": _K.NOT_FOUND,
        "model_retired": _K.NOT_FOUND,
        "model_not_exist": _K.NOT_FOUND,
        "modelnotfound": _K.NOT_FOUND,
        "invalid_model": _K.NOT_FOUND,  # Mistral, as a 400
        "unknown_model": _K.NOT_FOUND,
        "unsupported_model": _K.NOT_FOUND,
        "deploymentnotfound": _K.NOT_FOUND,  # Azure
        "not_found_error": _K.NOT_FOUND,
        "not_found": _K.NOT_FOUND,
        "notfounderror": _K.NOT_FOUND,
        "resourcenotfoundexception": _K.NOT_FOUND,
        # Busy.
        "rate_limit_exceeded": _K.RATE_LIMIT,
        "rate_limit_error": _K.RATE_LIMIT,
        "rate_limit_reached_error": _K.RATE_LIMIT,
        "rate_limited": _K.RATE_LIMIT,
        "too_many_requests": _K.RATE_LIMIT,
        "resource_exhausted": _K.RATE_LIMIT,  # Google words its per-minute limits as a quota
        "throttlingexception": _K.RATE_LIMIT,
        "throttling": _K.RATE_LIMIT,
        "throttling.ratequota": _K.RATE_LIMIT,
        "throttling.allocationquota": _K.RATE_LIMIT,
        "overloaded_error": _K.OVERLOADED,
        "overloaded": _K.OVERLOADED,
        "engine_overloaded": _K.OVERLOADED,
        "engine_overloaded_error": _K.OVERLOADED,
        "server_overloaded": _K.OVERLOADED,
        "service_unavailable": _K.OVERLOADED,
        "service_unavailable_error": _K.OVERLOADED,
        "serviceunavailableexception": _K.OVERLOADED,
        "modelnotreadyexception": _K.OVERLOADED,
        "service_tier_capacity_exceeded": _K.OVERLOADED,
        "capacity_exceeded": _K.OVERLOADED,
        "model_overloaded": _K.OVERLOADED,
        "unavailable": _K.OVERLOADED,
        "timeout": _K.TIMEOUT,
        "timeout_error": _K.TIMEOUT,
        "modeltimeoutexception": _K.TIMEOUT,
        "deadline_exceeded": _K.TIMEOUT,
        # Broken.
        "server_error": _K.SERVER_ERROR,
        "api_error": _K.SERVER_ERROR,
        "internal_error": _K.SERVER_ERROR,
        "internal_server_error": _K.SERVER_ERROR,
        "internalservererror": _K.SERVER_ERROR,
        "internalserverexception": _K.SERVER_ERROR,
        "modelerrorexception": _K.SERVER_ERROR,
        "engine_error": _K.SERVER_ERROR,
        # Our request, in general: only where nothing above speaks.
        "invalid_request_error": _K.INVALID_REQUEST,
        "invalid_argument": _K.INVALID_REQUEST,
        "badrequesterror": _K.INVALID_REQUEST,
        "validationexception": _K.INVALID_REQUEST,
    }
)
"""Kinds by a provider's code or type, lower case."""

_VAGUE = frozenset({_K.INVALID_REQUEST, _K.SERVER_ERROR})
"""What a code that says so leaves open: the status and the text may say more."""

TEXTS: tuple[tuple[FailureKind, re.Pattern[str]], ...] = (
    (
        _K.CONTEXT_OVERFLOW,
        re.compile(
            r"maximum context length"  # OpenAI, vLLM, OpenRouter, DeepSeek
            r"|model's (?:maximum )?context (?:limit|length|window)"
            # llama.cpp
            r"|exceeds? (?:the )?(?:model'?s? )?(?:maximum )?(?:available )?context (?:size|length|window|limit)"
            r"|context (?:length|window|size) (?:is |was |has been )?(?:exceeded|too (?:small|short))"
            r"|exceeds? the context window"
            r"|larger than the context|longer than the (?:model's )?(?:maximum )?context"
            # Anthropic, Bedrock
            r"|prompt is too long|prompt too long|input is too long|input too long|too many input tokens"
            r"|input length and `?max_tokens`? exceed context limit"
            r"|`inputs` (?:tokens \+ `max_new_tokens` )?must (?:be|have)"  # TGI
            r"|must have less than \d+ tokens"  # TEI
            r"|input token count .{0,40}exceeds the maximum"  # Gemini
            r"|exceeds the maximum number of tokens"
            r"|maximum (?:input|sequence|prompt) length"  # SGLang, vLLM's embedders, Ollama
            r"|input length .{0,40}exceeds .{0,40}(?:context|maximum)"
            r"|longer than the maximum (?:model )?length"
            r"|requested tokens? .{0,20}exceeds? .{0,40}context"  # llama-cpp-python
            r"|too large for model with \d+ maximum context"  # Mistral
            r"|current length is \d+ while limit is \d+"  # Cerebras
            r"|trying to keep the first \d+ tokens when context"  # LM Studio
            r"|request too large for .{0,120}(?:tpm|tokens per min)",  # never to succeed there, whatever we wait
            re.IGNORECASE,
        ),
    ),
    (
        _K.CONTENT_POLICY,
        re.compile(
            r"content[ _]management policy|content[ _]filter(?!_config)|content policy|responsible ai policy"
            r"|usage polic(?:y|ies)|safety system|flagged (?:as|by|for)|was flagged|input was flagged"
            r"|data may contain inappropriate content|prompt was blocked|blocked by (?:our|the) (?:safety|content)"
            r"|content exists risk",  # DeepSeek
            re.IGNORECASE,
        ),
    ),
)
"""What a text decides under any status: providers report these as 400, 403, 422, 429 and 500."""

_BAD_REQUEST_TEXTS: tuple[tuple[FailureKind, re.Pattern[str]], ...] = (
    (
        _K.QUOTA,
        re.compile(
            r"credit balance|insufficient (?:balance|credits?|funds|quota)|insufficient_quota|not enough credits?"
            r"|out of credits?|no credits? (?:left|remaining)|billing (?:hard limit|is not active)"
            r"|account .{0,30}(?:in arrears|overdue|suspended due to)|spending limit|payment required",
            re.IGNORECASE,
        ),
    ),
    (
        _K.AUTH,
        re.compile(
            r"(?:incorrect|invalid|expired|missing|bad|wrong|no|revoked|disabled) (?:\w+ )?api[ _-]?key"
            r"|api[ _-]?key (?:\w+ )?(?:is |was |has )?(?:not |been )?"
            r"(?:valid|invalid|expired|missing|incorrect|revoked|disabled|not found|provided|required)"
            r"|invalid (?:authentication|authorization|credentials|access token|bearer token)|authentication failed"
            r"|invalid x-api-key|unauthorized",
            re.IGNORECASE,
        ),
    ),
    (
        _K.NOT_FOUND,
        re.compile(
            r"model\b.{0,80}\b(?:does not exist|not found|is not available|no longer (?:available|supported|served)"
            r"|(?:has been|was|is) (?:retired|deprecated|decommissioned|shut down|removed)|is not supported)"
            r"|(?:unknown|invalid|no such) model\b|not a valid model|model_not_found"
            r"|invalid model (?:name|id|identifier)",
            re.IGNORECASE,
        ),
    ),
)
"""What a text decides under 400, 403 and 422 only: elsewhere the status says it."""

_BUSY_TEXT = re.compile(
    r"overloaded|at (?:full )?capacity|capacity (?:exceeded|constraints)|no healthy upstream"
    r"|no available (?:server|worker)"
    r"|(?:high|heavy) (?:load|demand|traffic)|model is (?:currently )?loading|server is busy|queue is full",
    re.IGNORECASE,
)


def classify(status: int | None, codes: tuple[str, ...] = (), text: str = "") -> FailureKind:
    """The kind of an error that the upstream stated.

    Args:
        status: Of HTTP; None for an error inside a stream.
        codes: The provider's codes and types, the most precise first.
        text: Its message, already without what it echoes of the request.
    """
    if status is not None and 300 <= status < 400:
        return _K.NOT_FOUND
    coded = [CODES[code.lower()] for code in codes if code.lower() in CODES]
    firm = next((kind for kind in coded if kind not in _VAGUE), None)
    # A rate limit's text may name the limit that no waiting lifts; any other firm code is better than its text.
    told = _kind_of_text(status, text) if firm in (None, _K.RATE_LIMIT) else None
    if told is not None or firm is not None:
        return told or firm or _K.UNKNOWN
    if status is None:
        return coded[0] if coded else _K.SERVER_ERROR
    return STATUSES.get(status, _K.SERVER_ERROR if status >= 500 else _K.UNKNOWN)


def _kind_of_text(status: int | None, text: str) -> FailureKind | None:
    tables = list(TEXTS) if status != 404 else []
    if status in (None, 400, 403, 422):
        tables += _BAD_REQUEST_TEXTS
    if status == 429:
        tables.append(_BAD_REQUEST_TEXTS[0])
    if status is None or status >= 500:
        tables.append((_K.OVERLOADED, _BUSY_TEXT))
    return next((kind for kind, pattern in tables if pattern.search(text)), None)


def failure_of(
    complaint: Complaint,
    redactor: Redactor,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    now: float = 0.0,
    quote: bool = True,
) -> UpstreamFailure:
    """The failure to raise for a complaint: classified from its cleaned text, with a message fit to be stored.

    Args:
        complaint: What the provider said.
        redactor: Of the request that it complains about.
        status: Of HTTP; where None, the complaint's own.
        headers: Of the response.
        now: Seconds since the epoch, for dates in ``Retry-After``.
        quote: Whether its text may be part of the message: not once there is an output that it could echo.
    """
    if status is None:
        status = complaint.status
    text = redactor.clean(complaint.text)
    kind = classify(status, complaint.codes, text)
    wait = retry_after_s(headers or {}, now)
    codes = redactor.clean(" ".join(dict.fromkeys(filter(None, map(_label, complaint.codes)))))
    return UpstreamFailure(
        kind,
        redactor.joined(codes, text if quote else ""),
        status,
        complaint.retry_after_s if wait is None else wait,
    )


def _label(code: str) -> str:
    """A code as it may be shown: codes are words, and whatever is not one is no code."""
    return code if re.fullmatch(r"[\w.:/-]{1,64}", code) else ""
