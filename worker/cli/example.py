"""The end of each command's help."""

from __future__ import annotations

__all__ = ["example"]


def example(*lines: str) -> str:
    """Examples for a command's help, and what goes with every command."""
    shown = "\n".join(f"  {line}" for line in lines)
    head = "Example" if len(lines) == 1 else "Examples"
    # \b is Typer's mark for text that is not to be wrapped.
    return f"\b\n{head}:\n{shown}\n\nWith every command: --json for one JSON document, --debug for tracebacks."
