"""What the fake upstream does with one call: an `Act`, and the named ones."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator


class Act(BaseModel):
    """One call's treatment. The default is a prompt, correct answer; every field adds one fault or changes one part.

    Fields combine: `Act(keepalive="comment", keepalive_s=0.5, first_content_s=10)` keeps the connection busy for ten
    seconds before the first token. Counts of chunks are counts of *content* chunks (text, reasoning, refusal or
    tool-call deltas); the role chunk is not one. For an answer that is not streamed, `stall_after`, `cut_after` and
    `eof_after` act in the middle of the body whatever their number, and `error_after` makes a 200 with an error in it.

    It is also built from a number (a status), a name of `NAMED`, or an object with `as: <name>`, to change that one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Before the headers.
    delay_s: float = 0.0
    reset: Literal["rst", "fin"] | None = None
    hang: Literal["before_headers", "after_headers"] | None = None

    # The response as a whole.
    status: int = 200
    headers: dict[str, str] = {}
    body: str | dict[str, Any] | list[Any] | None = None
    content_type: str | None = None
    code: str | None = None
    message: str | None = None
    error_type: str | None = None

    # Pace.
    first_content_s: float = 0.0
    gap_s: float = 0.0
    keepalive: Literal["comment", "role", "empty", "metadata", "newline"] | None = None
    keepalive_s: float = 0.5

    # Ends that are not ends.
    stall_after: int | None = None
    stall_s: float | None = None
    cut_after: int | None = None
    cut_with: Literal["rst", "fin"] = "fin"
    eof_after: int | None = None
    error_after: int | None = None

    # What is said.
    text: str | None = None
    reasoning: str | None = None
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    refusal: str | None = None
    tool_call: bool = False
    repeat: str | None = None
    line_bytes: int | None = None
    finish_reason: str | None = None

    # How it is written.
    broken_json: bool = False
    usage: bool | None = None
    done: bool = True
    role_chunks: int = 1
    chunk_chars: int = 24
    split_bytes: int | None = None
    newline: Literal["\n", "\r\n", "\r"] = "\n"

    # Embeddings.
    dim: int | None = None
    count_delta: int = 0
    shuffle: bool = False
    nan: bool = False
    nan_for: str | None = None  # only the vectors of texts that hold this
    seed: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError(  # noqa: TRY004 - what pydantic turns into a ValidationError
                f"an act is a status, a name or an object, not {value!r}"
            )
        if isinstance(value, int):
            return {"status": value}
        if isinstance(value, str):
            return _named(value)
        if isinstance(value, Mapping) and "as" in value:
            rest = {k: v for k, v in value.items() if k != "as"}
            return _named(value["as"]) | rest
        return value

    @classmethod
    def of(cls, value: "int | str | Act | Mapping[str, Any]") -> Self:
        """Build an act from any of its forms; an unknown name or field raises `pydantic.ValidationError`."""
        return cls.model_validate(value)

    @property
    def label(self) -> str:
        """A short name for the log: the name it has in `NAMED`, its status, or the fields that are not default."""
        fields = self.model_dump(exclude_defaults=True)
        if not fields:
            return "ok"
        for name, known in NAMED.items():
            if known == fields:
                return name
        if list(fields) == ["status"]:
            return str(self.status)
        return ",".join(f"{k}={v!r}"[:60] for k, v in fields.items())


def _named(name: object) -> dict[str, Any]:
    if not isinstance(name, str) or name not in NAMED:
        raise ValueError(f"no act is named {name!r}; there are: {', '.join(sorted(NAMED))}")
    return dict(NAMED[name])


LOGIN_PAGE = (
    "<!doctype html><html><head><title>Sign in</title></head>"
    "<body><form action='/login'><input name='user'></form></body></html>"
)

NAMED: dict[str, dict[str, Any]] = {
    "ok": {},
    # Nothing useful arrives.
    "reset": {"reset": "rst"},
    "close": {"reset": "fin"},
    "hang": {"hang": "before_headers"},
    "hang_after_headers": {"hang": "after_headers"},
    "stall": {"stall_after": 0},
    "comments": {"stall_after": 0, "keepalive": "comment", "keepalive_s": 0.2},
    "role_only": {"stall_after": 0, "keepalive": "role", "keepalive_s": 0.2},
    "empty_chunks": {"stall_after": 0, "keepalive": "empty", "keepalive_s": 0.2},
    # It begins and breaks.
    "stall_mid": {"stall_after": 3},
    "cut": {"cut_after": 3},
    "cut_rst": {"cut_after": 3, "cut_with": "rst"},
    "eof": {"eof_after": 3},
    "error_in_stream": {"error_after": 0},
    "error_mid": {"error_after": 3},
    "slow": {"gap_s": 0.1},
    # It ends, with something that is no answer.
    "empty": {"text": ""},
    "truncated": {"finish_reason": "length"},
    "filtered": {"finish_reason": "content_filter", "text": ""},
    "refused": {"refusal": "I can't help with that.", "text": ""},
    "tool_call": {"tool_call": True, "text": ""},
    "reasoning": {"reasoning": "The page shows a table. It is to be transcribed faithfully."},
    "reasoning_only": {"reasoning": "Let me think about this page for a while.", "text": ""},
    "repeat": {"repeat": "the same line again and again. ", "gap_s": 0.001},
    "long_line": {"line_bytes": 4_000_000},
    "broken_json": {"broken_json": True},
    "login_page": {"body": LOGIN_PAGE, "content_type": "text/html"},
    # Vectors.
    "wrong_width": {"dim": 7},
    "wrong_count": {"count_delta": -1},
    "extra_vector": {"count_delta": 1},
    "shuffled": {"shuffle": True},
    "nan": {"nan": True},
    "drift": {"seed": "another build"},
    # Statuses, as the providers word them.
    "bad_request": {"status": 400},
    "bad_key_400": {"status": 400, "code": "invalid_api_key", "message": "Incorrect API key provided."},
    "retired_400": {
        "status": 400,
        "code": "model_not_found",
        "message": "The model has been retired and is no longer available.",
    },
    "overflow": {
        "status": 400,
        "code": "context_length_exceeded",
        "message": "This model's maximum context length is 8192 tokens. Your messages resulted in 10240 tokens.",
    },
    "policy_400": {
        "status": 400,
        "code": "content_filter",
        "message": "The response was filtered due to the prompt triggering the content management policy.",
    },
    "no_credit_400": {
        "status": 400,
        "error_type": "invalid_request_error",
        "message": "Your credit balance is too low to access the API.",
    },
    "unauthorized": {"status": 401, "code": "invalid_api_key"},
    "no_credit": {"status": 402, "code": "insufficient_balance", "message": "Insufficient Balance"},
    "forbidden": {"status": 403},
    "not_found": {"status": 404, "code": "model_not_found"},
    "request_timeout": {"status": 408},
    "conflict": {"status": 409},
    "unprocessable": {"status": 422},
    "rate_limit": {"status": 429, "code": "rate_limit_exceeded", "headers": {"Retry-After": "1"}},
    "no_quota": {
        "status": 429,
        "code": "insufficient_quota",
        "error_type": "insufficient_quota",
        "message": "You exceeded your current quota, please check your plan and billing details.",
    },
    "server_error": {"status": 500},
    "bad_gateway": {"status": 502},
    "overloaded": {"status": 503, "message": "The model is overloaded. Please try again later."},
    "gateway_timeout": {"status": 504},
    "overloaded_529": {"status": 529, "error_type": "overloaded_error", "message": "Overloaded"},
}


def redirect(url: str, status: int = 307) -> Act:
    """An act that sends the client to `url` (another host's address, say)."""
    return Act(status=status, headers={"Location": url})
