"""One spelling for each endpoint, so that two ways to write it are one target."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit, urlunsplit

from pipeline.config.builtin import HOSTED

__all__ = ["checked_base_url", "host_of", "target_name"]

_DEFAULT_PORTS = {"http": 80, "https": 443}


def checked_base_url(url: str) -> str:
    """``url`` itself, when it can be an endpoint.

    Raises:
        ValueError: It is no http(s) URL, or carries a user name, a password, a query or a fragment. The text
            never repeats what stands before an ``@``.
    """
    parts = _split(url)
    if parts is None or parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        shown = re.sub(r"[^/]*@", "", url)
        # 'vllm-1:8000/v1' parses as the scheme 'vllm-1'.
        like = shown if re.match(r"^[\w.-]+(:\d+)?(/|$)", shown) else "host:8000/v1"
        msg = f"is {shown!r}, which is no http(s) URL; write 'http://{like}'"
        raise ValueError(msg)
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
    if "@" in parts.netloc:
        msg = f"carries a user name or password; write {bare!r} and name the key's variable in api_key_env"
        raise ValueError(msg)
    if parts.query or parts.fragment:
        msg = f"carries a query or fragment; write {bare!r}"
        raise ValueError(msg)
    return url


def host_of(url: str | None) -> str | None:
    """The host that a key for ``url`` may be sent to, in lower case."""
    parts = _split(url) if url else None
    return parts.hostname if parts else None


def target_name(model: str, base_url: str | None, hostname: str) -> str:
    """A target's key without the account: ``qwen3-14b@vllm-2:8000``, ``claude-sonnet-5@anthropic``, ``ocr@local:box``.

    Host in lower case; scheme, userinfo, the scheme's own port, ``/v1`` and trailing slashes are dropped. ``http``
    keeps its port 80, because the bare host means ``https``.

    Args:
        model: With its provider.
        base_url: None for the provider's own endpoint.
        hostname: This host's, which local models are told apart by.
    """
    provider, _, name = model.partition("/")
    if provider == "local":
        return f"{name}@local:{hostname}"
    return f"{name}@{_endpoint(provider, base_url)}"


def _endpoint(provider: str, base_url: str | None) -> str:
    parts = _split(base_url) if base_url else None
    if parts is None or not parts.hostname:
        return provider
    host = parts.hostname.rstrip(".")
    for owner, hosted in HOSTED.items():
        if host in hosted.hosts:
            return owner
    name = f"[{host}]" if ":" in host else host
    port = parts.port or _DEFAULT_PORTS[parts.scheme]
    path = re.sub(r"/{2,}", "/", parts.path).rstrip("/")
    return f"{name}{'' if port == 443 and parts.scheme == 'https' else f':{port}'}{'' if path == '/v1' else path}"


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError:
        return None
    return parts
