import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import FailureKind
from pipeline.providers.classify import CODES, STATUSES, classify, failure_of
from pipeline.providers.complaint import complaint_of
from pipeline.providers.redact import Redactor

K = FailureKind
NOW = 1_792_000_000.0
CASES: dict[str, dict[str, Any]] = {
    row["case"]: row
    for row in map(json.loads, Path(__file__).with_name("complaints.jsonl").read_text("utf-8").splitlines())
}


def failure(
    status: int | None, body: Any, headers: dict[str, str] | None = None, texts: tuple[str, ...] = ()
) -> UpstreamFailure:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return failure_of(complaint_of(raw), Redactor(texts), status=status, headers=headers, now=NOW)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, K.NOT_FOUND),
        (307, K.NOT_FOUND),
        (400, K.INVALID_REQUEST),
        (401, K.AUTH),
        (402, K.QUOTA),
        (403, K.AUTH),
        (404, K.NOT_FOUND),
        (405, K.NOT_FOUND),
        (408, K.TIMEOUT),
        (409, K.UNKNOWN),
        (410, K.NOT_FOUND),
        (413, K.INVALID_REQUEST),
        (418, K.UNKNOWN),
        (422, K.INVALID_REQUEST),
        (424, K.SERVER_ERROR),
        (429, K.RATE_LIMIT),
        (500, K.SERVER_ERROR),
        (502, K.SERVER_ERROR),
        (503, K.OVERLOADED),
        (504, K.TIMEOUT),
        (507, K.SERVER_ERROR),
        (520, K.SERVER_ERROR),
        (529, K.OVERLOADED),
        (None, K.SERVER_ERROR),
    ],
)
def test_a_bare_status_has_its_kind(status: int | None, kind: FailureKind) -> None:
    assert classify(status) is kind


@pytest.mark.parametrize("case", CASES)
def test_what_providers_say(case: str) -> None:
    """The lines of ``complaints.jsonl``: providers' real error bodies; a status of null is an event inside a stream."""
    row = CASES[case]
    assert failure(row["status"], row["body"]).kind == row["kind"]


def test_only_known_fields_of_a_body_are_quoted() -> None:
    assert failure(422, CASES["fastapi"]["body"]).message == "Field required"
    assert failure(502, CASES["nginx-502"]["body"]).message == ""


PAGES = [
    "Your card says: invalid API key, please check.",
    "The credit balance is too low, wrote the bank.",
    "The model T does not exist any more, said Ford.",
    "This model's maximum context length is 12 cm.",
    "The bridge is overloaded and at full capacity.",
]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("status", [400, 422])
def test_a_page_that_is_echoed_decides_nothing_and_is_not_stored(page: str, status: int) -> None:
    body = {"error": {"message": f"Invalid 'messages[1].content': {page}", "type": "invalid_request_error"}}
    found = failure(status, body, texts=(page,))
    assert found.kind == K.INVALID_REQUEST
    assert page[5:25] not in found.message


def test_a_code_that_is_no_word_is_not_shown() -> None:
    found = failure(400, {"error": {"code": "the whole prompt, echoed", "message": "no"}})
    assert found.message == "no"


def test_retry_after_comes_from_the_headers_and_else_from_the_body() -> None:
    body = {"error": {"code": 429, "message": "m", "details": [{"@type": "t", "retryDelay": "31s"}]}}
    assert failure(429, body).retry_after_s == 31.0
    assert failure(429, body, {"Retry-After": "7"}).retry_after_s == 7.0
    assert failure(503, "", {"Retry-After": "0"}).retry_after_s is None


def test_the_tables_are_in_the_form_that_they_are_looked_up_in() -> None:
    assert all(code == code.lower() for code in CODES)
    assert all(300 <= status < 600 for status in STATUSES)
