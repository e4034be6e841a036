"""A key and a sentence, planted wherever a user or a provider can put them: they come out nowhere.

The call is a real one, through the configuration, the core, Redis, Postgres and a provider that repeats all it got.
"""

from __future__ import annotations

import io
import pickle
import sys
import traceback
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
import redis
from prometheus_client import generate_latest
from pydantic import SecretStr
from sqlalchemy import text

from pipeline.adapters.chains import build_chains
from pipeline.clock import LoopClock, wall_now_s
from pipeline.config.load import ConfigProblems, parse_config
from pipeline.domain.errors import PartialStreamError, TidegateError
from pipeline.failover.call import Caller
from pipeline.failover.records import CallContext
from pipeline.failover.target import Chain
from pipeline.observe.logging import configure_logging
from pipeline.observe.metrics import Metrics
from pipeline.providers import Providers
from pipeline.registry import RedisRegistry, connect_to
from pipeline.settings import read_settings
from pipeline.store.attempt_sink import PostgresAttemptSink
from pipeline.store.session import Sessions
from tests.integration.providers.conftest import NoLocal, chat_request
from tests.upstream.fixtures import UpstreamFactory
from worker.events import EventLog

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier"),
    pytest.mark.filterwarnings("ignore:.*Accessing the.*attribute on the instance is deprecated"),
]

KEY = "sk-planted-4f8a1c77d2e94b05"
# Neither looks like anything: no prefix, no shape that a pattern knows.
HEADER_KEY = "marmalade lighthouse 7"
SENTENCE = "Patient Jane Roe keeps her savings behind the third brick."
CONFIG_SENTENCE = "the vault opens for whoever says periwinkle"
PLANTED = ("4f8a1c77d2e94b05", "marmalade", "lighthouse", "Jane Roe", "third brick", "vault opens", "periwinkle")

CONFIG = """
failover: {{ttft_timeout_s: 8, cooldown_s: 1}}
presets:
  a:
    model: openai/a
    base_url: {url}
    lane: {lane}
    api_key_env: PLANTED_KEY
    params: &sent {{metadata: {{note: "{sentence}"}}, extra_headers: {{X-Org: "{header_key}"}}}}
    fallbacks: [b]
  b: {{model: openai/b, base_url: "{url}", lane: {lane}, api_key_env: PLANTED_KEY, params: *sent}}
kb:
  vlm_formatter: {{preset: a}}
"""
ECHO = (
    f"Bad request: Authorization: Bearer {KEY}; key {KEY}; X-Org: {HEADER_KEY}; note {CONFIG_SENTENCE!r}; "
    f"content {SENTENCE!r} {SENTENCE.upper()}"
)
# Each of them says all that was planted, wherever a provider may say something.
ACTS: dict[str, dict[str, Any]] = {
    "plain_400": {"status": 400, "message": ECHO},
    "short": {"status": 422, "message": f"X-Org {HEADER_KEY} is wrong"},
    "code": {"status": 400, "code": KEY, "error_type": SENTENCE, "message": "no"},
    "auth": {"status": 401, "code": "invalid_api_key", "message": ECHO},
    "rate_limit": {"status": 429, "message": ECHO, "headers": {"X-Echo": HEADER_KEY}},
    "server_error": {"status": 500, "message": ECHO},
    "no_json": {"status": 502, "body": ECHO, "content_type": "text/plain"},
    "html": {"body": f"<html>{ECHO}</html>", "content_type": "text/html"},
    "json_200": {"body": {"error": {"message": ECHO, "code": KEY}}},
    "error_event": {"error_after": 0, "message": ECHO, "code": KEY},
    "error_after_content": {"error_after": 1, "message": ECHO, "code": KEY, "text": SENTENCE},
    "cut": {"cut_after": 1, "text": SENTENCE},
    "truncated": {"finish_reason": "length", "text": SENTENCE},
    "odd_finish": {"finish_reason": HEADER_KEY, "text": ""},
    "redirect": {"status": 307, "headers": {"Location": f"http://user:{KEY}@elsewhere.invalid/{HEADER_KEY}"}},
}


@pytest.fixture
def log() -> io.StringIO:
    """Everything that is logged, at the finest level and with nothing masked afterwards."""
    stream = io.StringIO()
    configure_logging("debug", "json", stream=stream)
    return stream


@pytest.fixture
def chain(lane: str, upstream: UpstreamFactory, monkeypatch: pytest.MonkeyPatch) -> tuple[Chain, Any, Any]:
    """The configured chain, its secrets, and the host that both its targets are on."""
    monkeypatch.setenv("PLANTED_KEY", KEY)
    host = upstream()
    settings = read_settings()
    source = CONFIG.format(url=host.base_url, lane=lane, sentence=CONFIG_SENTENCE, header_key=HEADER_KEY)
    config = parse_config(source, "tidegate.yaml", settings).config
    assert not [word for word in PLANTED if word in repr(config)]
    chains = build_chains(config, settings.secret, fingerprint_key=b"k", hostname="here")
    return chains.chain("vlm_formatter"), chains.secrets, host


@pytest.fixture
async def caller(
    chain: tuple[Chain, dict[str, SecretStr], Any], sessions: Sessions, redis_url: str
) -> AsyncIterator[Caller]:
    providers = Providers(chain[1], NoLocal(), wall_now_s, lambda *_: None)
    registry = RedisRegistry(connect_to(redis_url, 5), "tidegate:planted", rng=Random(1).random, timeout_s=5)
    await providers.prepare(chain[0].targets)
    with ThreadPoolExecutor(2) as executor:
        sink = PostgresAttemptSink(sessions, executor)
        yield Caller(registry, providers, sink, EventLog(METRICS), LoopClock(), Random(1).random)
    await providers.close()
    await registry.aclose()


METRICS = Metrics()


async def test_what_was_planted_is_in_no_log_row_error_or_repr(
    chain: tuple[Chain, dict[str, SecretStr], Any],
    caller: Caller,
    sessions: Sessions,
    redis_url: str,
    log: io.StringIO,
    capfd: pytest.CaptureFixture[str],
) -> None:
    configured, secrets, host = chain
    said: dict[str, str] = {"chain": repr(configured), "secrets": repr(secrets) + str(secrets)}
    kinds: list[str | None] = []
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        for name, act in ACTS.items():
            for stream in (True, False):
                host.clear()
                host.behave("*", act)
                client.flushall()
                request = chat_request(SENTENCE, stream=stream, input_digest=name)
                with pytest.raises(TidegateError) as caught:
                    await caller.chat(configured, request, CallContext(f"{name}-{stream}"))
                said[f"{name} {stream}"] = everything_of(caught.value) + repr(request)
                said[f"redis after {name}"] = everything_in(client)
        host.clear()
        host.behave("*", ACTS["error_after_content"])
        client.flushall()
        with pytest.raises(PartialStreamError) as broken:
            await drained(caller, configured)
        said["streamed"] = everything_of(broken.value)
    with sessions() as session:
        rows = session.execute(text("select attempt::text as row, kind from attempt")).all()
    kinds = [row.kind for row in rows]
    said |= {"rows": "\n".join(row.row for row in rows), "metrics": generate_latest(METRICS.registry).decode()}
    said["log"] = log.getvalue()
    said["out"], said["err"] = capfd.readouterr()

    assert host.calls()[0].authorization == f"Bearer {KEY}"
    assert {name.lower(): value for name, value in host.calls()[0].headers.items()}["x-org"] == HEADER_KEY
    assert len(rows) > len(ACTS) * 2
    assert None in kinds  # the ends of calls that nobody answered
    assert "attempt.failed" in said["log"]
    leaks = [(place, word) for place, words in said.items() for word in PLANTED if word.lower() in words.lower()]
    assert leaks == [], leaks


async def drained(caller: Caller, chain: Chain) -> None:
    async with caller.stream(chain, chat_request(SENTENCE), CallContext("streamed")) as stream:
        async for _ in stream:
            pass


def everything_of(error: TidegateError) -> str:
    """All that an error shows: itself, what it holds, its traceback, and the same after a journey."""
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    shown = [str(error), repr(error), repr(vars(error)), str(again), repr(again)]
    return "\n".join([*shown, *traceback.format_exception(error)])


def everything_in(client: Any) -> str:
    keys = client.keys()
    return repr({key: client.hgetall(key) if client.type(key) == "hash" else client.zrange(key, 0, -1) for key in keys})


def test_a_key_that_was_written_into_the_configuration_is_not_repeated() -> None:
    for line in (
        f"api_key: {KEY}",
        f"api_key_env: {KEY}",
        f"params: {{api_key: {KEY}}}",
        f"base_url: http://u:{KEY}@h/v1",
    ):
        source = f"presets:\n  a: {{model: openai/a, {line}}}\nkb: {{vlm_formatter: {{preset: a}}}}\n"
        with pytest.raises(ConfigProblems) as caught:
            parse_config(source, "tidegate.yaml", read_settings())
        shown = everything_of(caught.value) + repr(sys.exc_info())
        assert "4f8a1c77d2e94b05" not in shown
