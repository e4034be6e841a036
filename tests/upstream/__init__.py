"""A fake model server: real HTTP, OpenAI's wire format, misbehaving on command.

Nothing in Tidegate's tests replaces litellm or an HTTP client: they talk to this. It serves `POST /v1/chat/completions`
(streamed or not, images, JSON schema, tools), `POST /v1/embeddings`, `GET /v1/models` and `GET /health`, below any path
prefix, on 127.0.0.1. Left alone it answers at once, and the same request has the same answer:

- a prompt with images: `# Page <digest>`, a line `Image <sha256[:16]>, <n> bytes.` an image, then the prompt's anchor
  text (what stands between `<tag>` and `</tag>` in the user's messages);
- `response_format: json_schema`: an object that fits, its strings made of the prompt's words;
- any other prompt: its anchor text, or all of the user's text if there are no tags;
- embeddings: unit vectors hashed from the words, so that texts that share words are near. An empty text gets a 400.

In a test::

    def test_it(upstream):                                 # tests/upstream/fixtures.py
        primary, spare = upstream(), upstream(dim=1024)    # as many hosts as wanted, each on its own port
        primary.behave("vision", 503, 503, "ok")           # the next three calls
        primary.behave("vision", "stall", calls=2)         # the rule added last wins until it is used up
        primary.behave("*", {"as": "cut", "cut_after": 7}, prompt_contains="page 4")
        primary.behave("text", "rate_limit", in_flight_above=8)
        spare.answer("vision", lambda request: f"{len(request.images)} image(s)")
        primary.refuse(seconds=5)                          # connection refused, then back on the same port
        ...                                                # use primary.base_url, f"http://127.0.0.1:{dead_port()}/v1"
        [call] = primary.wait_for_calls(1, "vision", outcome="client_closed")
        assert call.duration_s < 2.1 and primary.peak_in_flight("text") <= 8

In another process: `python -m tests.upstream --port 0` prints `{"port": …, "control_port": …, "base_url": …}`; the
fixture `upstream_process` starts one. The control port is never refused. `UpstreamProcess` has the methods above except
`answer`:

| request | does |
| --- | --- |
| `POST /control` `[{"model": "vision", "do": [503, "ok"], "calls": 2}, {"do": "refuse", "seconds": 5}]` | adds rules |
| `GET /control`, `DELETE /control?model=` | shows, clears the rules |
| `GET /control/calls?model=&path=&outcome=&ended=&at_least=&timeout_s=` | the log; waits for `at_least` calls |
| `GET /control/peak?model=` | most calls in flight, and those now |
| `POST /control/reset` | no rules, empty log, listening |

A rule's `do` is an act or a sequence of acts; an act is a status, a name, or an object of fields (`{"as": name, …}`
changes a named one). Conditions: `model`, `path`, `authorization` (globs), `prompt_contains`, `stream`,
`in_flight_above`, `input_tokens_above`; limits: `calls`, `seconds` (from now), `from_s`, `cycle`.

| wanted | act | the log's outcome |
| --- | --- | --- |
| refuse connections | `refuse()`, or `dead_port()` for a port without a host | `dropped` for calls under way |
| RST or FIN before headers | `reset`, `close` | `reset` |
| silence before headers, after headers | `hang`, `hang_after_headers` | `client_closed` |
| slow to answer, slow first token, slow tokens | `delay_s`, `first_content_s`, `slow` or `gap_s` | `ok` |
| role chunk, then silence | `stall` | `client_closed` |
| … kept alive by comments, role chunks, empty chunks | `comments`, `role_only`, `empty_chunks`; `keepalive` | same |
| silence after N content chunks (for x s) | `stall_mid`; `stall_after`, `stall_s` | `client_closed` |
| connection closed after N content chunks | `cut`, `cut_rst`; `cut_after`, `cut_with` | `cut` |
| proper end without finish_reason | `eof`; `eof_after` | `eof` |
| error event after the role chunk, after N | `error_in_stream`, `error_mid`; `error_after` | `stream_error` |
| empty, cut short, filtered, refused | `empty`, `truncated`, `filtered`, `refused` | `ok` |
| tool call only, reasoning first, reasoning only | `tool_call`, `reasoning`, `reasoning_only` | `ok` |
| the same phrase for ever | `repeat` | `client_closed` |
| one line of 4 MB | `long_line`; `line_bytes` | `ok` |
| broken JSON | `broken_json` | `ok` |
| any body | `body`, `content_type`, `headers` | `body` |
| a login page with status 200 | `login_page` | `body` |
| any error status | 500, `rate_limit`, `no_quota`, `overflow`, …; `code`, `message`, `headers` | `status` |
| redirect to another host | `redirect(url)` | `status` |
| usage always, never; no `[DONE]`; CRLF; bytes in pieces | `usage`, `done`, `newline`, `split_bytes` | `ok` |
| vectors: width, count | `wrong_width`, `wrong_count`, `extra_vector` | `ok` |
| vectors: order, NaN, another build | `shuffled`, `nan`, `drift` | `ok` |
| busy above N at a time | any act with the condition `in_flight_above=N` | `status` |

All named acts are in `NAMED`, all fields in `Act`.
"""

from tests.upstream.act import NAMED, Act, redirect
from tests.upstream.calls import Call
from tests.upstream.fake import FakeUpstream
from tests.upstream.ports import dead_port
from tests.upstream.remote import RemoteUpstream, Upstream, UpstreamProcess
from tests.upstream.request import ChatRequest, Image
from tests.upstream.script import Rule

__all__ = [
    "NAMED",
    "Act",
    "Call",
    "ChatRequest",
    "FakeUpstream",
    "Image",
    "RemoteUpstream",
    "Rule",
    "Upstream",
    "UpstreamProcess",
    "dead_port",
    "redirect",
]
