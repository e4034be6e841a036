"""The command's outermost frame: every way to end, with its exit code and its one or two lines."""

from __future__ import annotations

import atexit
import gc
import sys
import traceback
from collections.abc import Sequence

from typer.exceptions import Abort, Exit, TyperException

from pipeline.domain.errors import (
    ChainExhausted,
    ConfigError,
    DeadlineExceeded,
    ServiceUnavailable,
    TidegateError,
    UsageError,
)
from worker.cli.terminal import Terminal, one_line

__all__ = ["main"]

_OBJECTS_BEFORE_GC = 50_000
_INTERRUPTED = 130
_NOBODY_READS = 141
_USAGE = 2
_EVERYWHERE = ("--json", "--debug")


def main(words: Sequence[str] | None = None) -> int:
    """Run ``tidegate`` with ``words`` (the command line's when None) and return its exit code."""
    # Nearly all that a command makes are modules, which stay: looking for garbage among them takes a tenth of its time.
    gc.set_threshold(_OBJECTS_BEFORE_GC)
    # The interpreter looks three times more as it ends, a sixth of a second: what is frozen is left to the system.
    atexit.register(gc.freeze)
    given = list(sys.argv[1:] if words is None else words)
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding can't show must not end a command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    flags, rest = _sort(given)
    terminal = Terminal(as_json="--json" in flags, debug="--debug" in flags)
    try:
        code = _run(rest, terminal)
        terminal.flush()
    except BrokenPipeError:
        terminal.abandon()
        return _NOBODY_READS
    return code


def _run(words: list[str], terminal: Terminal) -> int:
    from worker.cli.app import command

    try:
        root = command()
        with root.make_context("tidegate", words, obj=terminal) as context:
            root.invoke(context)
    except Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, Abort):
        return _INTERRUPTED
    except TyperException as error:
        return _explain_usage(error, terminal)
    except TidegateError as error:
        return _explain(error, terminal)
    except BrokenPipeError as error:
        # A service that hangs up is an error like others.
        if terminal.is_abandoned:
            raise
        return _explain_bug(error, terminal)
    except Exception as error:
        return _explain_bug(error, terminal)
    return 0


def _sort(words: list[str]) -> tuple[set[str], list[str]]:
    """``--json`` and ``--debug``, wherever they stand before a ``--``, and the other words."""
    end = words.index("--") if "--" in words else len(words)
    flags = {word for word in words[:end] if word in _EVERYWHERE}
    return flags, [word for word in words[:end] if word not in flags] + words[end:]


def _explain(error: TidegateError, terminal: Terminal) -> int:
    fact, _, remedy = str(error).partition("\n")
    if isinstance(error, ChainExhausted | DeadlineExceeded):
        remedy = "see who is away:  tidegate targets"
    problems = getattr(error, "problems", None)
    more = {"problems": list(problems)} if problems else {}
    terminal.fail(_kind(error), fact, remedy, **more)
    _trace(terminal)
    return error.exit_code


def _kind(error: TidegateError) -> str:
    known = {UsageError: "usage", ConfigError: "config", ServiceUnavailable: "service_unavailable"}
    return next((kind for cls, kind in known.items() if isinstance(error, cls)), "failed")


def _explain_usage(error: TyperException, terminal: Terminal) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tidegate"
    words = error.format_message() if hasattr(error, "format_message") else str(error)
    # Typer ends its sentences with a full stop, and has some that begin in the middle.
    message = one_line(words).rstrip(".")
    terminal.fail("usage", f"{path}: {message[:1].lower()}{message[1:]}", f"its options:  {path} --help")
    _trace(terminal)
    return int(getattr(error, "exit_code", _USAGE))


def _explain_bug(error: Exception, terminal: Terminal) -> int:
    where = f"{type(error).__name__}: {one_line(error)}" if str(error) else type(error).__name__
    remedy = "" if terminal.debug else "this is a bug; the same command with --debug shows where"
    terminal.fail("internal", f"unexpected error: {where}", remedy)
    _trace(terminal)
    return 1


def _trace(terminal: Terminal) -> None:
    if terminal.debug:
        traceback.print_exc()
