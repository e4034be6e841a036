"""``show``, ``search`` and ``ask``: reading what was taken in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from worker.cli.example import example
from worker.cli.session import services
from worker.cli.terminal import Terminal, one_line, terminal_of

if TYPE_CHECKING:
    from pipeline.domain.space import Space
    from pipeline.search import Hit, SearchResult
    from worker.bootstrap import Container
    from worker.cli.models import CommandCalls

__all__ = ["register", "say_hits", "search_for"]

_EXCERPT_CHARS = 240
_ASK_HITS = 6


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=example("tidegate show 7f3a", "tidegate show handbook/ch4.pdf --page 3"))(show)
    app.command(epilog=example("tidegate search 'when does the gate close?'", "tidegate search sluice --mode text"))(
        search
    )
    app.command(epilog=example("tidegate ask 'who may open the sluice?' --collection staff"))(ask)


def show(
    context: typer.Context,
    document: Annotated[str, typer.Argument(metavar="DOC", help="Its id, the start of one, or the path enqueued.")],
    page: Annotated[int | None, typer.Option("--page", metavar="N", min=1, help="Only that page.")] = None,
    format: Annotated[str, typer.Option("--format", metavar="markdown|json", help="How to print it.")] = "markdown",
) -> None:
    """Print a document as it was understood, page by page."""
    from pipeline.domain.errors import UsageError
    from pipeline.show import show as read_pages

    if format not in ("markdown", "json"):
        raise UsageError(f"--format is {format!r}", "it takes one of: markdown, json")
    terminal = terminal_of(context)
    terminal.as_json = terminal.as_json or format == "json"
    with services(terminal) as container:
        found = read_pages(container.sessions, document, page=page)
    terminal.emit(found.to_json())
    terminal.raw(found.to_markdown())


def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words, or a question.")],
    collection: Annotated[str | None, typer.Option("--collection", metavar="C", help="Only there.")] = None,
    k: Annotated[int, typer.Option("-k", metavar="N", help="The most hits.")] = 10,
    mode: Annotated[str, typer.Option("--mode", metavar="hybrid|vector|text", help="What to go by.")] = "hybrid",
) -> None:
    """Find passages, the best first. Only documents that are done are searched."""
    terminal = terminal_of(context)
    with services(terminal) as container:
        result = search_for(container, query, collection=collection, k=k, mode=mode)
    terminal.emit(result.to_json())
    for note in result.notes:
        terminal.note(f"note: {note}")
    if not result.hits:
        terminal.line("nothing found.")
    say_hits(terminal, result.hits)


def ask(
    context: typer.Context,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What to answer.")],
    collection: Annotated[str | None, typer.Option("--collection", metavar="C", help="Only from there.")] = None,
) -> None:
    """Answer a question from what search finds, with its sources."""
    from pipeline.adapters.llm import FallbackLlm
    from pipeline.ask import ask as answer_question
    from pipeline.domain.errors import UsageError
    from pipeline.failover.records import CallContext
    from pipeline.search import Mode
    from worker.cli.models import calls_of

    if not question.strip():
        raise UsageError("the question is empty", 'say what to answer: tidegate ask "a question"')
    terminal = terminal_of(context)
    with services(terminal) as container, calls_of(container) as made:
        found = _find(container, made, question, collection, _ASK_HITS, Mode.HYBRID)
        made.run(lambda calls: calls.prepare(["answer_llm"]))
        answerer = FallbackLlm(made.calls.caller, container.chains.chain("answer_llm"))
        about = CallContext(call_id=uuid4().hex, stage="answer")
        answered = made.run(lambda _: answer_question(question, found.hits, answerer, about))
    terminal.emit(answered.to_json())
    for note in found.notes:
        terminal.note(f"note: {note}")
    terminal.raw(answered.answer + "\n")
    for number, hit in answered.citations:
        terminal.line(f"[{number}]", _place(hit))
    if answered.model:
        terminal.note(f"answered by {answered.model}{' (a fallback)' if answered.degraded else ''}")


def search_for(container: Container, query: str, *, collection: str | None, k: int, mode: str) -> SearchResult:
    """Search, with the query embedded as far as the mode needs it and the embedder answers.

    Raises:
        UsageError: The query, the mode, ``k`` or the collection is off.
    """
    from pipeline.domain.errors import UsageError
    from pipeline.search import Mode
    from pipeline.search import search as search_store
    from worker.cli.models import calls_of

    try:
        chosen = Mode(mode)
    except ValueError:
        raise UsageError(f"--mode is {mode!r}", f"it takes one of: {', '.join(Mode)}") from None
    if chosen is Mode.TEXT or not query.strip():
        return search_store(container.sessions, query, collection=collection, k=k, mode=chosen)
    with calls_of(container) as made:
        return _find(container, made, query, collection, k, chosen)


def say_hits(terminal: Terminal, hits: list[Hit]) -> None:
    """Hits for people: where, how good, and how the passage begins."""
    from rich.text import Text

    for number, hit in enumerate(hits, 1):
        mark = "  degraded" if hit.chunk.degraded else ""
        head = Text.assemble(
            (f"{number:>2}  ", "dim"), (one_line(_place(hit)), "bold"), (f"  {hit.score:.4f}{mark}", "dim")
        )
        terminal.print(head)
        excerpt = one_line(hit.chunk.text)
        terminal.print(Text(f"    {excerpt[:_EXCERPT_CHARS]}{'…' if len(excerpt) > _EXCERPT_CHARS else ''}"))


def _find(
    container: Container, made: CommandCalls, query: str, collection: str | None, k: int, mode: str
) -> SearchResult:
    from pipeline.domain.errors import ChainExhausted, DeadlineExceeded
    from pipeline.failover.records import CallContext
    from pipeline.observe.logging import get_logger
    from pipeline.search import Mode
    from pipeline.search import search as search_store

    def embed(space: Space) -> list[float] | None:
        """The query as the model of a space sees it, also of one that the configuration no longer names."""
        chain, embedder = container.embedder_chain(space), made.calls.embedder_of(space, interactive=True)
        if chain is None or embedder is None:
            return None
        try:
            made.run(lambda calls: calls.providers.prepare(chain.targets))
            return made.run(lambda _: embedder.embed([query], CallContext(uuid4().hex, stage="query"))).value[0]
        except (ChainExhausted, DeadlineExceeded) as error:
            # Words are searched all the same, and the result says so.
            if mode == Mode.VECTOR:
                raise
            get_logger("search").warning("query.not_embedded", model=space.model, error=str(error))
            return None

    return search_store(container.sessions, query, collection=collection, k=k, mode=Mode(mode), embed=embed)


def _place(hit: Hit) -> str:
    chunk = hit.chunk
    pages = f"p. {chunk.page_from}" if chunk.page_from == chunk.page_to else f"pp. {chunk.page_from}-{chunk.page_to}"
    heading = f" · {' > '.join(chunk.heading)}" if chunk.heading else ""
    return f"{chunk.uri} · {pages}{heading}"
