"""What the fake says when it behaves."""

import base64
import hashlib
import json
import math
import struct
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.integration.upstream.conftest import MESSAGES, Client
from tests.upstream import FakeUpstream
from tests.upstream.answers import anchor_text
from tests.upstream.schema import fill

PICTURE = b"\x89PNG not really"
PAGE = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Transcribe.\n<anchor>\nTotal 42 €\n</anchor>"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(PICTURE).decode()}},
        ],
    }
]

SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {
            "context": {"type": "string", "maxLength": 40},
            "keywords": {"type": "array", "items": {"type": "string"}, "minItems": 4, "maxItems": 8},
            "questions": {"type": "array", "items": {"type": "string", "minLength": 5}, "maxItems": 2},
        },
        "required": ["context", "keywords", "questions"],
        "additionalProperties": False,
    },
    {
        "$defs": {
            "Node": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}
        },
        "$ref": "#/$defs/Node",
    },
    {
        "type": "object",
        "properties": {
            "level": {"enum": ["high", "low"]},
            "score": {"type": "number", "minimum": 0.2, "maximum": 0.4},
            "open": {"type": "number", "exclusiveMinimum": 3, "exclusiveMaximum": 4},
            "count": {"type": "integer", "minimum": 7, "multipleOf": 5},
            "below": {"type": "integer", "maximum": -3},
            "maybe": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
            "either": {"type": ["null", "string"]},
            "fixed": {"const": 3},
            "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": False},
            "both": {"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "null"}}}]},
        },
        "required": ["level", "score", "open", "count", "below", "maybe", "either", "fixed", "pair", "both"],
    },
]


async def test_a_page_is_answered_with_the_image_digest_and_the_anchor_text(host: FakeUpstream, client: Client) -> None:
    got = await client.chat(host, stream=False, messages=PAGE)
    assert got.json["choices"][0]["finish_reason"] == "stop"
    text = got.json["choices"][0]["message"]["content"]
    digest = hashlib.sha256(PICTURE).hexdigest()[:16]
    assert f"Image {digest}, {len(PICTURE)} bytes." in text
    assert "Total 42 €" in text
    assert "Transcribe" not in text
    assert host.calls()[0].image_digests == [digest]


async def test_streamed_and_whole_answers_are_the_same_text(host: FakeUpstream, client: Client) -> None:
    whole = await client.chat(host, stream=False, messages=PAGE)
    streamed = await client.chat(host, messages=PAGE)
    assert streamed.text == whole.json["choices"][0]["message"]["content"]
    assert streamed.finish_reasons == ["stop"]
    assert streamed.events[-1] == "[DONE]"
    assert streamed.headers["Content-Type"].startswith("text/event-stream")


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_a_structured_answer_satisfies_its_schema(
    host: FakeUpstream, client: Client, schema: dict[str, Any]
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "cues", "schema": schema, "strict": True}}
    got = await client.chat(host, stream=False, response_format=form)
    answer = json.loads(got.json["choices"][0]["message"]["content"])
    jsonschema.validate(answer, schema)
    assert fill(schema, "words of another prompt") != answer or schema is SCHEMAS[1]


def test_blocks_that_others_contain_are_left_out_of_the_anchor_text() -> None:
    prompt = "Format this.\n<description>\nA title\nand a body\n</description>\n<layer>\nand a body\n</layer>"
    assert anchor_text(prompt) == "A title\nand a body"
    assert anchor_text("What stands between <layer> tags is material.\n<layer>\nA gate\n</layer>") == "A gate"


async def test_an_answer_function_sees_the_request(host: FakeUpstream, client: Client) -> None:
    host.answer("vision", lambda request: f"{len(request.images)} image, {request.max_tokens}")
    host.answer("text", "always this")
    got = await client.chat(host, model="vision", messages=PAGE, max_tokens=50)
    assert got.text == "1 image, 50"
    assert (await client.chat(host, model="text")).text == "always this"


async def test_max_tokens_cuts_the_answer(host: FakeUpstream, client: Client) -> None:
    got = await client.chat(host, max_tokens=5)
    assert got.finish_reasons == ["length"]
    assert len(got.text) == 20


async def test_usage_comes_when_asked_for(host: FakeUpstream, client: Client) -> None:
    assert not any("usage" in c for c in (await client.chat(host)).chunks)
    asked = await client.chat(host, stream_options={"include_usage": True})
    assert asked.chunks[-1]["choices"] == []
    assert asked.chunks[-1]["usage"]["completion_tokens"] > 0
    host.behave("m", {"usage": True}, {"usage": False}, {"usage": False})
    assert "usage" in (await client.chat(host)).chunks[-1]
    assert "usage" not in (await client.chat(host, stream_options={"include_usage": True})).chunks[-1]
    assert "usage" not in (await client.chat(host, stream=False)).json


async def test_a_required_tool_is_called(host: FakeUpstream, client: Client) -> None:
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = {"type": "function", "function": {"name": "count", "parameters": parameters}}
    got = await client.chat(host, stream=False, tools=[tool], tool_choice="required")
    choice = got.json["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    jsonschema.validate(json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]), parameters)


async def test_vectors_are_deterministic_unit_and_near_for_shared_words(host: FakeUpstream, client: Client) -> None:
    texts = ["the harbour gate closes", "the harbour gate opens", "quarterly revenue table"]
    got = await client.embed(host, *texts, dimensions=512)
    a, b, c = (d["embedding"] for d in got.json["data"])
    assert [d["index"] for d in got.json["data"]] == [0, 1, 2]
    assert len(a) == 512
    assert math.isclose(sum(x * x for x in a), 1.0, rel_tol=1e-9)
    assert sum(x * y for x, y in zip(a, b, strict=True)) > 0.5 > sum(x * y for x, y in zip(a, c, strict=True))
    again = await client.embed(host, texts[0], dimensions=512)
    assert again.json["data"][0]["embedding"] == a


async def test_vectors_come_in_base64_when_asked_for(host: FakeUpstream, client: Client) -> None:
    plain = (await client.embed(host, "tide")).json["data"][0]["embedding"]
    coded = (await client.embed(host, "tide", encoding_format="base64")).json["data"][0]["embedding"]
    assert len(plain) == 64
    assert struct.unpack("<64f", base64.b64decode(coded)) == pytest.approx(plain, abs=1e-7)


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/embeddings", {"model": "m", "input": ["a", ""]}, "empty string"),
        ("/embeddings", {"model": "m", "input": []}, "non-empty"),
        ("/chat/completions", {"model": "m", "messages": []}, "messages"),
        ("/chat/completions", {"messages": MESSAGES}, "model"),
        ("/chat/completions", {"model": "m", "messages": MESSAGES, "response_format": {"type": "json_schema"}}, "name"),
        (
            "/chat/completions",
            {
                "model": "m",
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,@"}}],
                    }
                ],
            },
            "image",
        ),
    ],
)
async def test_a_wrong_request_is_refused_as_a_real_endpoint_does(
    host: FakeUpstream, client: Client, path: str, body: dict[str, Any], says: str
) -> None:
    got = await client.post(host, path, body)
    assert got.status == 400
    assert says in got.json["error"]["message"]
    assert host.calls()[0].outcome == "rejected"


async def test_models_health_and_unknown_paths(host: FakeUpstream, client: Client) -> None:
    async with client.session.get(host.base_url + "/models") as response:
        assert [m["id"] for m in (await response.json())["data"]] == ["fake-model"]
    async with client.session.get(host.url + "/health") as response:
        assert await response.json() == {"status": "ok"}
    assert (await client.post(host, "/responses", {})).status == 404
    assert [c.path for c in host.calls()] == ["/v1/models", "/health", "/v1/responses"]
