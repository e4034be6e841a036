from __future__ import annotations

import ssl

import pytest
from kombu import Connection

from pipeline.domain.errors import ConfigError
from worker.embedded import broker_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("unix:///tmp/h/run/redis.sock?db=0", "redis+socket:///tmp/h/run/redis.sock?virtual_host=0"),
        ("unix:///tmp/redis.sock", "redis+socket:///tmp/redis.sock?virtual_host=0"),
        ("unix://u:p%40w@/tmp/redis.sock?db=3&protocol=3", "redis+socket://u:p%40w@/tmp/redis.sock?virtual_host=3"),
        ("redis+socket:///tmp/redis.sock?virtual_host=2", "redis+socket:///tmp/redis.sock?virtual_host=2"),
        ("redis://cache:6379", "redis://cache:6379/0"),
        ("redis://cache:6379/", "redis://cache:6379/0"),
        ("redis://:secret@cache:6379/5", "redis://:secret@cache:6379/5"),
        ("redis://cache?db=4&socket_timeout=9", "redis://cache/4"),
        ("rediss://cache/1", "rediss://cache/1?ssl_cert_reqs=required"),
        ("rediss://cache/1?ssl_cert_reqs=none", "rediss://cache/1?ssl_cert_reqs=none"),
    ],
)
def test_every_redis_url_has_a_form_for_the_broker(url: str, expected: str) -> None:
    assert broker_url(url) == expected


@pytest.mark.parametrize("url", ["redis://cache?db=4&protocol=3", "rediss://cache/1", "unix:///tmp/a.sock?db=1"])
def test_the_broker_library_accepts_what_it_is_given(url: str) -> None:
    with Connection(broker_url(url)) as connection:
        assert connection.transport_cls in {"redis", "rediss"}


def test_certificates_are_verified_unless_the_url_says_otherwise() -> None:
    with Connection(broker_url("rediss://cache/1")) as connection:
        assert connection.ssl == {"ssl_cert_reqs": ssl.CERT_REQUIRED}


def test_another_scheme_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'amqp'"):
        broker_url("amqp://rabbit")
