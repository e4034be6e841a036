"""Each mistake in a configuration gives a line with the file, the line number, the key, the value and the fix."""

from __future__ import annotations

import pickle
import textwrap

import pytest

from pipeline.config.load import ConfigProblems
from tests.unit.config.conftest import Loads, Refused

TEXT = """
presets:
  text: {model: openai/qwen3-14b, base_url: "http://vllm-2:8000/v1"}
"""
EMBEDDER = """
kb:
  embedder:
    model: openai/bge-m3
    dim: 1024
    base_url: http://embed-1:8080/v1
"""

CASES = {
    "YAML that is none": ("presets:\n  a: {model: x\nkb: 1\n", "tidegate.yaml:3: this is not YAML: "),
    "a tab": ("failover:\n\tttft_timeout_s: 3\n", "tidegate.yaml:2: this is not YAML: "),
    "two documents": ("a: 1\n---\nb: 2\n", "tidegate.yaml:2: this is not YAML: but found another document"),
    "a list at the top": ("- 1\n", "tidegate.yaml:1: the configuration is no map; write keys like 'presets:'"),
    "a key twice": (
        "unit:\n  slice: 2\n  slice: 3\n",
        "tidegate.yaml:3: unit.slice is given twice (first in line 2); keep one",
    ),
    "an object tag": ("unit: {slice: !!python/name:os.system x}\n", "tidegate.yaml:1: unit.slice has the tag "),
    "an alias of itself": ("presets: &p\n  a: *p\n", "tidegate.yaml:1: presets.a repeats itself through aliases"),
    "a merge of nothing": ("unit: {<<: 3}\n", "tidegate.yaml:1: unit merges ('<<') what is no map"),
    "a control character": (
        "unit:\n  slice: \x07\n",
        "tidegate.yaml:2: this is not YAML: a control character, '\\x07'",
    ),
    "half a character": (
        'registry: {prefix: "\\ud800"}\n',
        "tidegate.yaml:1: registry.prefix holds half a character",
    ),
    "a value that its tag does not fit": (
        "unit: {slice: !!int x}\n",
        "tidegate.yaml:1: unit.slice is 'x', which its tag does not fit; leave the tag out",
    ),
    "a key that is no text": ("? [a]\n: 1\n", "tidegate.yaml:1: the configuration has a key that is no plain text"),
    "an endless time": (
        "park: {give_up_after_s: .inf}\n",
        "tidegate.yaml:1: park.give_up_after_s is inf, which should be a finite number",
    ),
    "a number beyond reason": (
        "unit: {slice: 99999999999999999999999999}\n",
        "tidegate.yaml:1: unit.slice is 99999999999999999999999999, which should be 1e+12 or less",
    ),
    "a retention beyond all time": (
        "retention: {attempts_days: 10000000}",
        "tidegate.yaml:1: retention.attempts_days is 10000000, which should be 1e+06 or less",
    ),
    "a lease beyond its deadline": (
        "unit: {lease_s: 60, hard_deadline_s: 30}\n",
        "tidegate.yaml:1: unit.lease_s is 60, above unit.hard_deadline_s (30); lower it",
    ),
    "a collection's chunks that repeat themselves": (
        "collections: {c: {chunk: {overlap_tokens: 300}}}\n",
        "tidegate.yaml:1: collections.c.chunk.overlap_tokens is 300, more than half",
    ),
    "a collection's chunks at odds with the common ones": (
        "chunk: {max_tokens: 200}\ncollections: {c: {chunk: {overlap_tokens: 150}}}\n",
        "tidegate.yaml:2: collections.c.chunk.overlap_tokens is 150, more than half of max_tokens (200)",
    ),
    "an unknown key": (
        "failover:\n  ttft_timeout: 3\n",
        "tidegate.yaml:2: failover.ttft_timeout is no key of the configuration; did you mean 'ttft_timeout_s'?",
    ),
    "an unknown section": (
        "colections: {}\n",
        "tidegate.yaml:1: colections is no key of the configuration; did you mean 'collections'?",
    ),
    "a key of a section at the top": (
        "ttft_timeout_s: 3\n",
        "tidegate.yaml:1: ttft_timeout_s is no key at the top; it belongs under failover",
    ),
    "a key unlike any": (
        "park: {zzz: 1}\n",
        "tidegate.yaml:1: park.zzz is no key of the configuration; known here: give_up_after_s",
    ),
    "an unknown key in a replica": (
        EMBEDDER + "    fallbacks: [{base_urls: x}]\n",
        "tidegate.yaml:7: kb.embedder.fallbacks[0].base_urls is no key of the configuration; did you mean 'base_url'?",
    ),
    "text for a number": (
        "unit: {slice: eight}\n",
        "tidegate.yaml:1: unit.slice is 'eight', which should be a whole number",
    ),
    "true for a number": (
        "unit: {slice: true}\n",
        "tidegate.yaml:1: unit.slice is True, which should be a whole number",
    ),
    "a fraction for a count": (
        "unit: {slice: 1.5}\n",
        "tidegate.yaml:1: unit.slice is 1.5, which should be a whole number",
    ),
    "no time at all": (
        "failover: {ttft_timeout_s: 0}\n",
        "tidegate.yaml:1: failover.ttft_timeout_s is 0, which should be above 0",
    ),
    "a lease too short to renew": (
        "unit: {lease_s: 1}\n",
        "tidegate.yaml:1: unit.lease_s is 1, which should be 3 or more",
    ),
    "yes for true": (
        TEXT + "    \n".join(["  b: {model: openai/x, tools: yes}\n"]),
        "tidegate.yaml:4: presets.b.tools is 'yes', which should be true or false",
    ),
    "a word that is none of the choices": (
        "ingest: {on_page_failure: keeep}\n",
        "tidegate.yaml:1: ingest.on_page_failure is 'keeep', which should be one of fail, keep; did you mean 'keep'?",
    ),
    "an unknown when": (
        "describe: {when: sometimes}\n",
        "tidegate.yaml:1: describe.when is 'sometimes', which should be one of always, auto, never",
    ),
    "an unknown modality": (
        "presets: {a: {model: openai/x, modalities: [text, imge]}}\n",
        "tidegate.yaml:1: presets.a.modalities[1] is 'imge', which should be one of text, image, audio, video; "
        "did you mean 'image'?",
    ),
    "text for a map": (
        "failover: fast\n",
        "tidegate.yaml:1: failover is 'fast', which should be a map, like {key: value}",
    ),
    "text for a list": (
        "presets: {a: {model: openai/x, fallbacks: b}}\n",
        "tidegate.yaml:1: presets.a.fallbacks is 'b', which should be a list, like [a, b]",
    ),
    "a preset name for a replica": (
        EMBEDDER + "    fallbacks: [text]\n",
        "tidegate.yaml:7: kb.embedder.fallbacks[0] is 'text', which should be a map, like {key: value}",
    ),
    "an unknown rule preset": (
        "failover: {on_error: permisive}\n",
        "tidegate.yaml:1: failover.on_error is 'permisive', which should be one of standard, permissive, conservative; "
        "did you mean 'permissive'?",
    ),
    "an unknown failure kind": (
        "failover: {on_error: {rate_limt: {action: stop}}}\n",
        "tidegate.yaml:1: failover.on_error.rate_limt is no failure kind that a rule can change; known: connect, ",
    ),
    "a rule for our own bugs": (
        "failover: {on_error: {internal: {cooldown: true}}}\n",
        "tidegate.yaml:1: failover.on_error.internal is no failure kind that a rule can change",
    ),
    "a word for a cooldown": (
        "failover: {on_error: {timeout: {cooldown: long}}}\n",
        "tidegate.yaml:1: failover.on_error.timeout.cooldown is 'long', which should be a number",
    ),
    "a preset without a model": (
        "presets:\n  a:\n    tools: true\n",
        "tidegate.yaml:2: presets.a.model is missing; name the model as litellm does, like openai/qwen3-14b",
    ),
    "an empty preset": ("presets:\n  a:\n", "tidegate.yaml:2: presets.a.model is missing"),
    "a role without a preset": (
        "kb:\n  vlm: {tools: true}\n",
        "tidegate.yaml:2: kb.vlm.preset is missing; name the preset that this role's chain begins with",
    ),
    "an embedder without a width": (
        "kb: {embedder: {model: openai/bge-m3}}\n",
        "tidegate.yaml:1: kb.embedder.dim is missing; give the width of the model's vectors, like 1024",
    ),
    "a model without a provider": (
        "presets: {a: {model: qwen3-14b}}\n",
        "tidegate.yaml:1: presets.a.model is 'qwen3-14b', which names no provider; "
        "write provider/model, like 'openai/qwen3-14b' for any server that speaks OpenAI's protocol",
    ),
    "an unknown local model": (
        "presets: {a: {model: local/orc}}\n",
        "tidegate.yaml:1: presets.a.model is 'local/orc', which is no local model; did you mean 'local/ocr'?",
    ),
    "a key for a local model": (
        'presets: {a: {model: local/ocr, base_url: "http://h"}}\n',
        "tidegate.yaml:1: presets.a.base_url means nothing for 'local/ocr', which runs inside Tidegate; take it out",
    ),
    "an address without a scheme": (
        "presets: {a: {model: openai/x, base_url: 'vllm-1:8000/v1'}}\n",
        "tidegate.yaml:1: presets.a.base_url is 'vllm-1:8000/v1', which is no http(s) URL; "
        "write 'http://vllm-1:8000/v1'",
    ),
    "an address with a port that is none": (
        "presets: {a: {model: openai/x, base_url: 'http://h:99999/v1'}}\n",
        "tidegate.yaml:1: presets.a.base_url is 'http://h:99999/v1', which is no http(s) URL",
    ),
    "an address with a query": (
        "presets: {a: {model: openai/x, base_url: 'http://h/v1?x=1'}}\n",
        "tidegate.yaml:1: presets.a.base_url carries a query or fragment; write 'http://h/v1'",
    ),
    "a parameter that Tidegate sends": (
        "presets: {a: {model: openai/x, params: {stream: true}}}\n",
        "tidegate.yaml:1: presets.a.params holds 'stream', which Tidegate sets itself; leave it out",
    ),
    "a fallback that is no preset": (
        TEXT + "  b:\n    model: openai/x\n    fallbacks: [txet]\n",
        "tidegate.yaml:6: presets.b.fallbacks names 'txet', which is not a preset; did you mean 'text'?",
    ),
    "a local fallback that nobody defined": (
        "presets: {a: {model: openai/x, fallbacks: [local-ocr]}}\n",
        "tidegate.yaml:1: presets.a.fallbacks names 'local-ocr', which is not a preset; "
        "define it under presets as local-ocr: {model: local/ocr}",
    ),
    "a policy fallback that is no preset": (
        "presets: {a: {model: openai/x, content_policy_fallbacks: [q]}}\n",
        "tidegate.yaml:1: presets.a.content_policy_fallbacks names 'q', which is not a preset; defined are: a",
    ),
    "a role's preset that is none": (
        TEXT + "kb:\n  vlm_formatter: {preset: txt}\n",
        "tidegate.yaml:5: kb.vlm_formatter.preset names 'txt', which is not a preset; did you mean 'text'?",
    ),
    "a role's preset where there are none": (
        "kb: {answer_llm: {preset: text}}\n",
        "tidegate.yaml:1: kb.answer_llm.preset names 'text', which is not a preset; none is defined under presets",
    ),
    "a blind model to look at pages": (
        TEXT + "kb:\n  vlm: {preset: text}\n",
        "tidegate.yaml:3: presets.text.modalities is [text], but kb.vlm needs image input; "
        "if the model takes it, write [text, image]",
    ),
    "no structured answers where they are needed": (
        TEXT + "  b: {model: openai/x, json_schema: false}\nkb:\n  retrieval_llm: {preset: b}\n",
        "tidegate.yaml:4: presets.b.json_schema is false, but kb.retrieval_llm needs structured answers",
    ),
    "a tweak that breaks the role's contract": (
        TEXT + "kb:\n  retrieval_llm:\n    preset: text\n    json_schema: false\n",
        "tidegate.yaml:7: kb.retrieval_llm.json_schema is false, but kb.retrieval_llm needs structured answers",
    ),
    "a local model in another role's chain": (
        TEXT.replace('/v1"}', '/v1", fallbacks: [ocr]}')
        + "  ocr: {model: local/ocr}\nkb: {answer_llm: {preset: text}}\n",
        "tidegate.yaml:4: presets.ocr (local/ocr) is in the chain of kb.answer_llm, but it reads text off page images; "
        "only kb.vlm can use it",
    ),
    "a chat model that is the local embedder": (
        "presets: {a: {model: local/wordllama}}\nkb: {answer_llm: {preset: a}}\n",
        "tidegate.yaml:1: presets.a (local/wordllama) is in the chain of kb.answer_llm, but it embeds texts; "
        "only kb.embedder can use it",
    ),
    "an embedder that embeds nothing": (
        "kb: {embedder: {model: local/ocr, dim: 256}}\n",
        "tidegate.yaml:1: kb.embedder.model is 'local/ocr', which reads text off page images and embeds nothing",
    ),
    "another width than the local embedder's": (
        "kb: {embedder: {model: local/wordllama, dim: 300}}\n",
        "tidegate.yaml:1: kb.embedder.dim is 300, but local/wordllama makes 256; write 256",
    ),
    "vectors too wide for an index": (
        "kb:\n  embedder:\n    model: openai/big\n    dim: 4096\n",
        "tidegate.yaml:4: kb.embedder.dim is 4096, above the 4000 that a vector index holds",
    ),
    "a replica of another model": (
        EMBEDDER + '    fallbacks:\n      - {base_url: "http://embed-2", model: openai/e5}\n',
        "tidegate.yaml:8: kb.embedder.fallbacks[0].model is 'openai/e5', but the embedder is 'openai/bge-m3'",
    ),
    "a replica of another width": (
        EMBEDDER + '    fallbacks:\n      - base_url: "http://embed-2"\n        dim: 512\n',
        "tidegate.yaml:9: kb.embedder.fallbacks[0].dim is 512, but the embedder's is 1024",
    ),
    "a replica of nothing": (
        EMBEDDER + "    fallbacks: [{}]\n",
        "tidegate.yaml:7: kb.embedder.fallbacks[0] names no base_url, so it is the embedder itself",
    ),
    "a replica that would be sent another host's key": (
        EMBEDDER + '    api_key_env: EMBED_KEY\n    fallbacks: [{base_url: "http://embed-2:8080/v1"}]\n',
        "tidegate.yaml:8: kb.embedder.fallbacks[0] is on 'embed-2', another host than the embedder's, "
        "and a key is never sent to another host by itself; name its own api_key_env",
    ),
    "two bounds for one target": (
        "presets:\n"
        "  a: {model: openai/x, base_url: 'http://H:80/v1/', max_parallel: 4, fallbacks: [b]}\n"
        "  b: {model: hosted_vllm/x, base_url: 'http://h', max_parallel: 8}\n"
        "kb: {answer_llm: {preset: a}}\n",
        "tidegate.yaml:3: presets.b.max_parallel is 8, but presets.a.max_parallel, for the same target x@h:80, is 4; "
        "give both one value",
    ),
    "a reserve that eats the deadline": (
        "failover: {deadline_s: 5}\n",
        "tidegate.yaml:1: failover.reserve_s does not fit: reserve_s is 10 and deadline_s 5; "
        "lower reserve_s or raise deadline_s",
    ),
    "a first cooldown above the longest": (
        "presets: {a: {model: openai/x, cooldown_s: 900}}\n",
        "tidegate.yaml:1: presets.a.cooldown_s does not fit: cooldown_s is 900 and cooldown_max_s 600",
    ),
    "an allow-list of nobody": (
        TEXT + "collections:\n  c:\n    allow_targets: [vision]\n",
        "tidegate.yaml:6: collections.c.allow_targets names 'vision', which is not a preset",
    ),
    "chunks above what the embedder takes": (
        "chunk: {max_tokens: 600}\n",
        "tidegate.yaml:1: chunk.max_tokens is 600, above the 512 tokens that local/wordllama embeds; lower it",
    ),
    "chunks that repeat themselves": (
        "chunk: {max_tokens: 100, overlap_tokens: 90}\n",
        "tidegate.yaml:1: chunk.overlap_tokens is 90, more than half of max_tokens (100); give at most 50",
    ),
    "a preset for no call at a time": (
        "presets: {a: {model: openai/x, max_parallel: 0}}\n",
        "tidegate.yaml:1: presets.a.max_parallel is 0, which should be 1 or more",
    ),
    "a role for no call at a time": (
        TEXT + "kb:\n  vlm_formatter: {preset: text, max_parallel: -3}\n",
        "tidegate.yaml:5: kb.vlm_formatter.max_parallel is -3, which should be 1 or more",
    ),
    "an embedder for no call at a time": (
        EMBEDDER + "    max_parallel: 0\n",
        "tidegate.yaml:7: kb.embedder.max_parallel is 0, which should be 1 or more",
    ),
    "a replica for no call at a time": (
        EMBEDDER + "    fallbacks: [{base_url: 'http://embed-2:8080/v1', max_parallel: 0}]\n",
        "tidegate.yaml:7: kb.embedder.fallbacks[0].max_parallel is 0, which should be 1 or more",
    ),
    "the older spelling and the newer": (
        "agents: {presets: {}}\npresets: {}\n",
        "tidegate.yaml:1: agents.presets is the older spelling of presets, which is given too; keep presets",
    ),
}


@pytest.mark.parametrize(("text", "says"), CASES.values(), ids=CASES.keys())
def test_a_mistake_is_named_with_its_line_its_value_and_its_fix(refused: Refused, text: str, says: str) -> None:
    lines = refused(text, EMBED_KEY="k")

    assert len(lines) == 1
    assert lines[0].startswith(says)
    assert "\n" not in lines[0]


def test_all_mistakes_of_a_file_are_found_at_once_in_the_order_of_its_lines(refused: Refused) -> None:
    text = textwrap.dedent(
        """
        failover: {ttft_timeout_s: -1}
        presets:
          text: {model: openai/x, modle: y, fallbacks: [txt]}
        kb:
          vlm: {preset: text}
        unit: {slice: many}
        """
    )

    assert [line.split(" ")[0] + line.split(" ")[1] for line in refused(text)] == [
        "tidegate.yaml:2:failover.ttft_timeout_s",
        "tidegate.yaml:4:presets.text.fallbacks",
        "tidegate.yaml:4:presets.text.modalities",
        "tidegate.yaml:4:presets.text.modle",
        "tidegate.yaml:7:unit.slice",
    ]


def test_the_error_reads_as_its_first_line_and_survives_pickling(refused: Refused) -> None:
    error = ConfigProblems(refused("unit: {slice: a, max_lost: b}\n"))

    assert str(error).splitlines() == [
        "tidegate.yaml:1: unit.max_lost is 'b', which should be a whole number",
        "and 1 more; see them all with: tidegate config check",
    ]
    assert pickle.loads(pickle.dumps(error)).problems == error.problems  # noqa: S301
    assert error.exit_code == 3


@pytest.mark.parametrize(
    "text",
    [
        "presets: {a: {model: openai/x, api_key: sk-hunter2}}\n",
        "presets: {a: {model: openai/x, params: {api_key: sk-hunter2}}}\n",
        "presets: {a: {model: openai/x, api_key_env: sk-hunter2}}\n",
        "presets: {a: {model: openai/x, api_key_env: [sk-hunter2]}}\n",
        "presets: {a: {model: openai/x, api_key_env: hunter2hunter2hunter2hunter2}}\n",
        "presets: {a: {model: openai/x, base_url: 'http://me:hunter2@h/v1'}}\n",
        "presets: {a: {model: openai/x, base_url: 'me:hunter2@h/v1'}}\n",
        "kb: {embedder: {model: openai/x, dim: 3, fallbacks: [{base_url: 'http://me:hunter2@h'}]}}\n",
    ],
)
def test_a_key_in_the_file_is_refused_without_being_shown(refused: Refused, text: str) -> None:
    lines = refused(text)

    assert len(lines) == 1
    assert "hunter2" not in lines[0]


def test_an_inline_key_is_told_where_it_belongs(refused: Refused) -> None:
    assert refused("presets:\n  a:\n    model: openai/x\n    api_key: sk-1\n") == (
        "tidegate.yaml:4: presets.a.api_key: a key is never written in the configuration; "
        "put it into an environment variable and name that in api_key_env",
    )


def test_a_key_that_is_not_set_stops_a_start_and_names_preset_and_variable(refused: Refused, loads: Loads) -> None:
    text = "presets:\n  text: {model: openai/x, api_key_env: TEXT_KEY}\nkb: {answer_llm: {preset: text}}\n"

    assert refused(text) == (
        "tidegate.yaml:2: presets.text.api_key_env names 'TEXT_KEY', which is not set in the environment; "
        "set it, or take the key out",
    )
    assert loads(text, TEXT_KEY="k").warnings == ()


def test_lines_follow_the_older_spelling(refused: Refused) -> None:
    assert refused("agents:\n  presets:\n    a: {model: openai/x, fallbacks: [b]}\n") == (
        "tidegate.yaml:3: presets.a.fallbacks names 'b', which is not a preset; defined are: a",
    )
