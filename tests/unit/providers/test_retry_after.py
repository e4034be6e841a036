import pytest

from pipeline.providers.retry_after import duration_s, retry_after_s

NOW = 1_792_000_000.0


@pytest.mark.behaviour(27)
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "1"}, 1.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"RETRY-AFTER": " 20 "}, 20.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"Retry-After": "2", "Retry-After-Ms": "1250"}, 1.25),
        ({"Retry-After": "3", "retry-after-ms": "0"}, 3.0),
        ({"Retry-After": "86400"}, 86_400.0),
        ({"Retry-After": "0"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "1e9"}, None),
        ({"Retry-After": "9" * 400}, None),
        ({"Retry-After": "Thu, 99 Zzz 2026"}, None),
        ({}, None),
    ],
)
def test_what_a_header_says(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, NOW) == seconds


@pytest.mark.behaviour(27)
def test_a_date_is_read_against_the_clock_that_was_given() -> None:
    header = {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}
    at = 1_792_567_680.0
    assert retry_after_s(header, at - 30.0) == 30.0
    assert retry_after_s(header, at) is None
    assert retry_after_s(header, at + 5.0) is None


@pytest.mark.parametrize("off_s", [-60.0, 60.0, 86_400.0])
def test_a_date_is_read_against_the_upstreams_own_clock_where_it_says_it(off_s: float) -> None:
    header = {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT", "date": "Wed, 21 Oct 2026 07:27:30 GMT"}
    assert retry_after_s(header, 1_792_567_680.0 + off_s) == 30.0
    assert retry_after_s(header | {"date": "half past seven"}, 1_792_567_680.0 - 20.0) == 20.0


@pytest.mark.parametrize(
    ("value", "seconds"), [("30s", 30.0), ("1.5s", 1.5), ("0s", None), ("30", None), ("s", None), (45, None)]
)
def test_googles_durations(value: object, seconds: float | None) -> None:
    assert duration_s(value) == seconds
