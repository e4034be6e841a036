"""What the host says when it behaves: a deterministic function of the request."""

import json
import re
from collections.abc import Callable
from typing import Any

from tests.upstream.request import ChatRequest
from tests.upstream.schema import fill

_SUBJECTS = ("chunk", "passage")  # the block that a structured question is about, where there are several

Answer = Callable[[ChatRequest], str] | str

# From the last opening tag before the closing one: instructions may name a tag ("between <chunk> tags").
_BLOCK = re.compile(r"<([A-Za-z][\w-]*)(?:\s[^>]*)?>\n?((?:(?!<\1[\s>]).)*?)\n?</\1>", re.DOTALL)


def anchor_text(prompt: str) -> str:
    """The document text in a prompt: what stands between `<tag>` and `</tag>`; empty if there are no tags.

    Several blocks are joined by blank lines; one that another contains is left out, as a page's description often
    repeats its text layer.
    """
    blocks = [b.strip() for _, b in _BLOCK.findall(prompt)]
    kept: list[str] = []
    for i, block in enumerate(blocks):
        others = blocks[:i] + [b for b in blocks[i + 1 :] if b != block]
        if block and not any(block in other for other in others):
            kept.append(block)
    return "\n\n".join(kept)


def default_answer(request: ChatRequest) -> str:
    """JSON that fits a schema; for images a digest line each and the anchor text; else the anchor text alone."""
    anchor = anchor_text(request.user_text)
    if request.schema is not None:
        chunks = [block for tag, block in _BLOCK.findall(request.user_text) if tag in _SUBJECTS]
        about = chunks[-1] if chunks else anchor or request.user_text
        return json.dumps(fill(request.schema, about), ensure_ascii=False)
    if not request.images:
        return anchor or request.user_text.strip() or "(nothing to say)"
    pictures = "\n".join(f"Image {i.digest}, {i.length_bytes} bytes." for i in request.images)
    return f"# Page {request.images[0].digest[:8]}\n\n{pictures}\n\n{anchor}".rstrip()


def tool_call(request: ChatRequest) -> dict[str, Any]:
    """A call of the request's first tool (or of one named `lookup`), with arguments that fit its parameters."""
    function = request.tools[0].get("function", {}) if request.tools else {}
    parameters = function.get("parameters") or {"type": "object", "properties": {"query": {"type": "string"}}}
    arguments = json.dumps(fill(parameters, anchor_text(request.user_text)), ensure_ascii=False)
    return {
        "id": f"call_{request.prompt_digest}",
        "type": "function",
        "function": {"name": function.get("name", "lookup"), "arguments": arguments},
    }
