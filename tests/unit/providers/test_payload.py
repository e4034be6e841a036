import base64
import json
import math
from array import array
from dataclasses import replace
from typing import Any

import pytest

from pipeline.domain.errors import UpstreamFailure
from pipeline.failover.kinds import FailureKind
from pipeline.failover.upstream import ChatRequest, Delta, EmbedRequest, ImagePart, Message, TextPart, ToolCall
from pipeline.providers.lenient_json import loads
from pipeline.providers.payload import (
    ChunkReader,
    chat_messages,
    chat_options,
    read_reply,
    read_token_counts,
    read_vectors,
    request_texts,
    with_params,
)

OPEN_SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
CLOSED_SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/B"}}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"B": {"type": "object", "properties": {}, "additionalProperties": False}},
}


def request(**changes: Any) -> ChatRequest:
    return replace(ChatRequest("describe", (), stream=False), **changes)


def refused(call: Any, *arguments: Any) -> UpstreamFailure:
    with pytest.raises(UpstreamFailure) as caught:
        call(*arguments)
    return caught.value


def test_a_single_text_is_plain_content_and_images_are_data_uris() -> None:
    messages = chat_messages(
        [Message("system", (TextPart("s"),)), Message("user", (TextPart("u"), ImagePart(b"\xff\xd8", "image/jpeg")))]
    )
    assert messages == [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "u"},
                {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9g="}},
            ],
        },
    ]


def test_strict_is_asked_for_only_where_the_schema_is() -> None:
    def sent(schema: dict[str, Any]) -> Any:
        return chat_options(request(json_schema=schema, schema_name="cues"))["response_format"]["json_schema"]

    assert sent(CLOSED_SCHEMA) == {"name": "cues", "schema": CLOSED_SCHEMA, "strict": True}
    assert sent(OPEN_SCHEMA) == {"name": "cues", "schema": OPEN_SCHEMA}
    assert "strict" not in sent(CLOSED_SCHEMA | {"$defs": {"B": OPEN_SCHEMA}})


def test_a_stream_asks_for_usage_and_a_whole_answer_does_not_stream() -> None:
    assert chat_options(request(stream=True, max_output_tokens=9)) == {
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert chat_options(request()) == {}


def test_params_are_added_as_they_are_and_null_takes_out_what_would_be_sent() -> None:
    body = with_params({"a": 1, "stream_options": {}}, {"stream_options": None, "top_k": 5, "b": 0})
    assert body == {"a": 1, "top_k": 5, "b": 0}


def test_all_texts_of_a_request_are_known_to_the_redactor() -> None:
    messages = (Message("system", (TextPart("s"),)), Message("user", (TextPart("u"), ImagePart(b"x"))))
    assert list(request_texts(request(messages=messages))) == ["s", "u"]
    assert list(request_texts(EmbedRequest(("a", "b"), 2))) == ["a", "b"]


def chunk(delta: Any, **choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None} | choice]}


@pytest.mark.parametrize(
    "empty",
    [
        {},
        {"choices": []},
        {"choices": None},
        {"choices": "?"},
        chunk(None),
        chunk({"role": "assistant"}),
        chunk({"content": ""}),
        chunk({"content": None, "reasoning_content": "", "tool_calls": []}),
    ],
    ids=str,
)
def test_what_is_no_content_is_no_delta(empty: dict[str, Any]) -> None:
    reader = ChunkReader()
    assert reader.read(empty) is None
    assert not reader.saw_content


def test_the_kinds_of_content() -> None:
    reader = ChunkReader()
    assert reader.read(chunk({"content": "x"})) == Delta("x")
    assert reader.read(chunk({"content": [{"type": "text", "text": "y"}, {"type": "thinking"}]})) == Delta("y")
    assert reader.read(chunk({"reasoning_content": "r"})) == Delta(reasoning="r")
    assert reader.read(chunk({"reasoning": "r"})) == Delta(reasoning="r")
    call = {"index": 1, "id": "c", "function": {"name": "f", "arguments": '{"'}}
    assert reader.read(chunk({"tool_calls": [call, {"index": 1, "function": {"arguments": "a"}}]})) == Delta(
        tool_calls=(ToolCall(1, "f", '{"', "c"), ToolCall(1, "", "a"))
    )
    assert reader.saw_content


def test_the_last_usage_and_the_finish_reason_are_kept() -> None:
    reader = ChunkReader()
    reader.read(chunk({"content": "x"}) | {"usage": {"prompt_tokens": 3, "completion_tokens": 1}})
    reader.read(chunk({}, finish_reason="stop"))
    reader.read({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 7}})
    reader.read({"choices": [], "usage": None})
    assert (reader.finish_reason, reader.token_counts) == ("stop", (3, 7))


def test_a_refusal_in_the_apis_own_field_is_content_policy() -> None:
    assert refused(ChunkReader().read, chunk({"refusal": "I can't"})).kind == FailureKind.CONTENT_POLICY
    body = {"choices": [{"message": {"content": None, "refusal": "I can't"}}]}
    found = refused(read_reply, body)
    assert found.kind == FailureKind.CONTENT_POLICY
    assert "can't" not in found.message


@pytest.mark.parametrize(
    "document", [None, [], {}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": "x"}]}], ids=str
)
def test_a_body_without_an_answer_is_invalid_output(document: object) -> None:
    assert refused(read_reply, document).kind == FailureKind.INVALID_OUTPUT


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": 5, "total_tokens": 5}, (5, 0)),
        ({"prompt_tokens": 5, "completion_tokens": None}, (5, 0)),
        ({"total_tokens": 5}, None),
        (None, None),
        ("many", None),
    ],
    ids=str,
)
def test_token_counts(usage: object, counts: tuple[int, int] | None) -> None:
    assert read_token_counts(usage) == counts


def entry(index: Any, *numbers: Any) -> dict[str, Any]:
    return {"object": "embedding", "index": index, "embedding": list(numbers)}


def test_vectors_are_put_in_the_order_of_their_index() -> None:
    assert read_vectors({"data": [entry(1, 3.0, 4), entry(0, 1.0, 2.0)]}, 2, 2) == [[1.0, 2.0], [3.0, 4]]


def test_vectors_without_any_index_are_in_the_order_of_the_texts() -> None:
    data = [{"embedding": [1.0]}, {"embedding": [2.0]}]
    assert read_vectors({"data": data}, 2, 1) == [[1.0], [2.0]]


def test_base64_is_little_endian_float32() -> None:
    packed = base64.b64encode(array("f", [0.5, -2.0]).tobytes()).decode()
    assert read_vectors({"data": [{"index": 0, "embedding": packed}]}, 1, 2) == [[0.5, -2.0]]


@pytest.mark.parametrize(
    ("document", "fact"),
    [
        (None, "holds no vectors"),
        ({"data": {}}, "holds no vectors"),
        ({"data": ["x", "y"]}, "holds no vectors"),
        ({"data": [entry(0, 1.0, 2.0)]}, "1 vectors for 2 texts"),
        ({"data": [entry(0, 1.0, 2.0)] * 3}, "3 vectors for 2 texts"),
        ({"data": [entry(0, 1.0, 2.0), entry(0, 1.0, 2.0)]}, "indices"),
        ({"data": [entry(0, 1.0, 2.0), entry(2, 1.0, 2.0)]}, "indices"),
        ({"data": [entry(0, 1.0, 2.0), entry(-1, 1.0, 2.0)]}, "indices"),
        ({"data": [entry(0, 1.0, 2.0), entry("1", 1.0, 2.0)]}, "indices"),
        ({"data": [entry(0, 1.0, 2.0), entry(1, 1.0)]}, "1 numbers where 2 are due"),
        ({"data": [entry(0, 1.0, None), entry(1, 1.0, math.nan)]}, "not finite"),
        ({"data": [entry(0, 1.0, None), entry(1, 1.0, math.inf)]}, "not finite"),
        ({"data": [entry(0, 1.0, None), entry(1, 0.0, 0)]}, "not finite"),
        ({"data": [entry(0, 0.0, 0), entry(1, 0.0, 0)]}, "zeros"),
        ({"data": [entry(0, 1.0, 2.0), entry(1, 1.0, True)]}, "neither"),
        ({"data": [entry(0, 1.0, 2.0), {"index": 1}]}, "neither"),
        ({"data": [entry(0, 1.0, 2.0), {"index": 1, "embedding": "!!!"}]}, "base64"),
        ({"data": [entry(0, 1.0, 2.0), {"index": 1, "embedding": "AAAA"}]}, "base64"),
    ],
    ids=str,
)
def test_vectors_that_are_not_those_asked_for_are_invalid_output(document: object, fact: str) -> None:
    found = refused(read_vectors, document, 2, 2)
    assert found.kind == FailureKind.INVALID_OUTPUT
    assert fact in found.message


@pytest.mark.parametrize("bad", [(1.0, math.nan), (1.0, math.inf), (None, None), (0.0, 0)], ids=str)
def test_a_vector_of_no_use_is_empty_beside_good_ones(bad: tuple[Any, ...]) -> None:
    assert [*map(list, read_vectors({"data": [entry(1, 1.0, 2.0), entry(0, *bad)]}, 2, 2))] == [[], [1.0, 2.0]]


def test_nan_as_servers_write_it_is_read_and_refused() -> None:
    document = loads(b'{"data": [{"index": 0, "embedding": [NaN, 1.0]}]}')
    assert "not finite" in refused(read_vectors, document, 1, 2).message


def test_half_of_a_surrogate_pair_does_not_break_a_stream() -> None:
    line = json.dumps(chunk({"content": "\ud83d"})).encode()
    assert ChunkReader().read(loads(line)) == Delta("\ud83d")
