import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.providers.redact import MAX_MESSAGE_CHARS, Redactor

PAGE = "Patient Jane Roe, born 1961-04-02, was admitted with acute appendicitis on Tuesday."


@pytest.mark.parametrize(
    "echo",
    [
        PAGE,
        PAGE[:30],
        PAGE.upper(),
        PAGE.replace(" ", "\\n"),
        PAGE.replace(" ", "  "),
        "".join(f"\\u{ord(char):04x}" for char in PAGE),
        PAGE.replace("-", "\u2028"),
    ],
)
def test_what_a_provider_echoes_of_the_prompt_is_taken_out(echo: str) -> None:
    message = Redactor([PAGE]).message("invalid_request_error", f"Invalid value: '{echo}'. Expected a number.")
    assert "Invalid value" in message
    assert "Expected a number" in message
    for word in ("Jane", "jane", "JANE", "1961"):
        assert word not in message


def test_a_short_text_is_taken_out_whole() -> None:
    assert "swordfish" not in Redactor(["swordfish"]).message("bad input 'swordfish' given")


def test_cjk_text_is_taken_out() -> None:
    page = "患者は火曜日に急性虫垂炎で入院した。"
    assert "虫垂炎" not in Redactor([page]).message(f"cannot parse: {page}")


def test_words_that_are_only_the_providers_stay() -> None:
    text = "This model's maximum context length is 8192 tokens, however you requested 10240 tokens"
    assert Redactor([PAGE]).message(text) == text


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Incorrect API key provided: sk-proj-abcd1234efgh5678.", "abcd1234"),
        ("Incorrect API key provided: sk-ab***************yz12.", "yz12"),
        ("Authorization: Basic dXNlcjpwYXNz was refused", "dXNlcjpwYXNz"),
        ("got header 'Authorization': 'Bearer abcdef123456'", "abcdef123456"),
        ("could not reach https://user:hunter2@models.example/v1", "hunter2"),
        ("GET /v1?key=AbCdEf123&alt=sse failed", "AbCdEf123"),
        ("x-api-key: zzzz9999yyyy", "zzzz9999yyyy"),
        ("token AIzaSyD-1234567890abcdefg rejected", "1234567890"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", "eyJzdWIiOiIxIn0"),
        ("image data:image/png;base64,iVBORw0KGgo= too large", "iVBORw0KGgo"),
        ("id 0123456789abcdef0123456789abcdef was not found", "0123456789abcdef"),
    ],
)
def test_what_looks_like_a_secret_is_taken_out(text: str, secret: str) -> None:
    assert secret not in Redactor().message(text)


def test_the_key_that_was_sent_is_taken_out_whatever_it_looks_like() -> None:
    assert "plainword" not in Redactor(secrets=["plainword"]).message("no such key: plainword!")


def test_a_message_is_one_short_line() -> None:
    message = Redactor().message("code", "a\nb\x00c\ud800d " + "word " * 200)
    assert message.startswith("code: a b c d word")
    assert len(message) == MAX_MESSAGE_CHARS
    assert "\n" not in message
    message.encode()


def test_a_large_request_costs_no_noticeable_time() -> None:
    page = "0" * 500_000 + PAGE * 5_000
    message = Redactor([page]).message("0" * 3_000 + PAGE)
    assert not set(message) - set("[…]. ")


@settings(deadline=None)  # a busy machine is no finding
@given(before=st.text(max_size=40), page=st.text("abc ", min_size=12, max_size=80), after=st.text(max_size=40))
def test_no_run_of_twelve_letters_of_the_request_survives(before: str, page: str, after: str) -> None:
    message = Redactor([page]).message(before + page + after)
    letters = "".join(page.split())
    kept = "".join(message.split())
    assert not any(letters[at : at + 12] in kept for at in range(len(letters) - 11))
