"""The stages' prompts, a Markdown file each; a changed prompt changes the recipe by itself."""

from __future__ import annotations

from functools import cache
from importlib import resources

from pipeline.domain.digest import text_digest

__all__ = ["delimited", "load_prompt", "prompt_digest"]


@cache
def load_prompt(name: str) -> str:
    """The text of ``prompts/<name>.md``."""
    return resources.files(__package__).joinpath(f"{name}.md").read_text(encoding="utf-8").strip()


def prompt_digest(name: str) -> str:
    """A short digest of a prompt's text, its version in the recipe."""
    return text_digest(load_prompt(name))[:16]


def delimited(tag: str, text: str) -> str:
    """Material between tags; a closing tag inside it is broken up, so that it can't end its own quotation."""
    return f"<{tag}>\n{text.replace(f'</{tag}', f'< /{tag}')}\n</{tag}>"
