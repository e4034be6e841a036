"""A status as people see it: the batch, the stages' bars, what waits and for whom, and the documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from pipeline.domain.run import RunState
from pipeline.domain.unit import Stage
from pipeline.failover.registry import BreakerState
from worker.cli.bars import bar
from worker.cli.paths import near
from worker.cli.terminal import Column, make_table, one_line
from worker.cli.times import clock, duration

if TYPE_CHECKING:
    from pipeline.status import DocumentStatus, Status
    from pipeline.store.overview import StageTotals
    from pipeline.why import ChainLink

__all__ = ["documents_table", "picture"]

_ORDER = (
    RunState.DONE,
    RunState.RUNNING,
    RunState.QUEUED,
    RunState.PARKED,
    RunState.FAILED,
    RunState.EMPTY,
    RunState.CANCELLED,
)
_URGENT = (RunState.FAILED, RunState.PARKED, RunState.RUNNING, RunState.QUEUED)
STATE_STYLES = {
    RunState.DONE: "green",
    RunState.RUNNING: "cyan",
    RunState.PARKED: "yellow",
    RunState.FAILED: "red",
    RunState.QUEUED: "",
    RunState.EMPTY: "dim",
    RunState.CANCELLED: "dim",
}
_MINUTE_S = 60.0
_BETWEEN = "   "


def picture(
    status: Status,
    links: Mapping[Stage, Sequence[ChainLink]],
    most: int,
    width: int,
    *,
    batch: str | None = None,
    only_failed: bool = False,
) -> RenderableType:
    """The whole view.

    Args:
        links: The chains that something waits for.
        most: Documents to list; what needs attention comes first.
        width: The terminal's.
        batch: The one that was asked for.
        only_failed: Only what failed is listed, so that nothing can be said of the stages.
    """
    if not sum(status.counts.values()):
        said = f"nothing of batch {batch} was new" if batch else "no documents yet:  tidegate enqueue FILES"
        return Group(Text(said), *_notes(status))
    head = _head(status, batch)
    if only_failed:
        none = [] if status.documents else [Text("nothing has failed.")]
        return Group(head, *none, *_documents(status, most, width))
    return Group(
        head, *_stages(status, width), *_parked(status, links), *_notes(status), *_documents(status, most, width)
    )


def documents_table(documents: Sequence[DocumentStatus], width: int) -> RenderableType:
    """Documents one by one: state, pages, chunks, models used, seconds."""
    columns = [
        Column("id", style="dim"),
        Column("document", cut="start"),
        Column("state"),
        Column("pages", right=True),
        Column("chunks", right=True),
        Column("models", cut="end"),
        Column("seconds", right=True),
        Column("", cut="end"),
    ]
    return make_table(columns, [_row(document) for document in documents], width)


def _row(one: DocumentStatus) -> list[object]:
    at = f" at {one.stage.value}" if one.stage and one.state not in (RunState.DONE, RunState.QUEUED) else ""
    return [
        str(one.id)[:8],
        near(one.path),
        Text(f"{one.state.value}{at}", style=STATE_STYLES[one.state]),
        "–" if one.pages is None else f"{one.pages:,}",
        f"{one.chunks:,}" if one.chunks else "–",
        ", ".join(one.models) or "–",
        "–" if one.seconds is None else f"{one.seconds:.1f}",
        _remark(one),
    ]


def _remark(one: DocumentStatus) -> str:
    said = []
    if one.failure_kind and one.state is not RunState.CANCELLED:
        said.append(f"{one.failure_kind}: {one.failure_detail}")
    if one.state is RunState.PARKED:
        said.append(f"next try at {clock(one.resume_at)}" if one.resume_at else "waits without a time")
    if one.incomplete:
        said.append("incomplete")
    if one.degraded:
        said.append(f"{one.degraded} degraded")
    if one.live and one.state in (RunState.FAILED, RunState.CANCELLED):
        said.append("an earlier version is searchable")
    return ", ".join(said)


def _head(status: Status, wanted: str | None) -> Text:
    total = sum(status.counts.values())
    batches = {(one.batch, one.collection) for one in status.documents}
    name = wanted or ""
    # What is not listed may belong to others.
    if len(batches) == 1 and (wanted or len(status.documents) == total):
        batch, collection = batches.pop()
        name = f"{batch} · {collection}   " if batch else f"{collection}   "
    line = Text.assemble(_label("batch" if name else "all"), one_line(name))
    if name:
        line.append("   ")
    line.append(f"{total:,} document{'s' if total != 1 else ''}   ")
    for index, state in enumerate(state for state in _ORDER if status.counts.get(state)):
        line.append(" · " if index else "")
        line.append(f"{status.counts[state]:,} {state.value}", style=STATE_STYLES[state])
    return line


def _stages(status: Status, width: int) -> Iterator[Text]:
    """The bars, a line as many as fit."""
    parts = [Text(_progress(one)) for one in status.stages if one.stage is not Stage.CHUNK and one.total]
    if pace := _pace(status):
        parts.append(Text(pace, style="dim"))
    line = _label("stage")
    for number, part in enumerate(parts):
        if number and line.cell_len + len(_BETWEEN) + part.cell_len > width:
            yield line
            line = _label("")
        elif number:
            line.append(_BETWEEN)
        line.append_text(part)
    if parts:
        yield line


def _progress(one: StageTotals) -> str:
    ended = one.done + one.failed
    count = f"{one.done:,}" if ended == one.total else f"{one.done:,}/{one.total:,}"
    failed = f", {one.failed:,} failed" if one.failed else ""
    return f"{one.stage.value} {bar(ended, one.total)} {count}{failed}"


def _pace(status: Status) -> str:
    """Pages a second and the time left, as the last minute tells them."""
    if not status.active:
        return ""
    by_stage = {one.stage: one for one in status.stages}
    pages = max(by_stage[Stage.FORMAT].lately, by_stage[Stage.DESCRIBE].lately) / _MINUTE_S
    # Each stage goes its own pace; the slowest decides. What no one has seen yet is not counted.
    left_s = [
        (one.total - one.done - one.failed - one.parked) / (one.lately / _MINUTE_S)
        for one in status.stages
        if one.lately and one.total > one.done + one.failed + one.parked
    ]
    said = [f"{pages:.1f} pages/s"] if pages else []
    if left_s:
        # A tenth of a second would be more than anybody can know.
        said.append(f"about {duration(max(10.0, max(left_s)))} left")
    return " · ".join(said)


def _parked(status: Status, links: Mapping[Stage, Sequence[ChainLink]]) -> Iterator[Text]:
    if not status.parked:
        return
    from pipeline.why import next_try

    for note in status.parked:
        chain = links.get(note.stage, ())[: 1 if note.primary_only else None]
        away = [link for link in chain if link.status.state is not BreakerState.CLOSED]
        whom = ", ".join(_described(link) for link in away) or f"a target of {note.stage.value}"
        then_at = next_try(note.resume_at, chain)
        then = f"; the next try is at {clock(then_at)}" if then_at else ""
        verb = "waits" if note.documents == 1 else "wait"
        yield Text.assemble(_label("parked"), (one_line(f"{note.documents:,} {verb} for {whom}{then}"), "yellow"))


def _described(link: ChainLink) -> str:
    from datetime import UTC, datetime

    state = link.status
    if state.state is BreakerState.DISABLED:
        return f"{link.name}, which is disabled"
    until = f" until {clock(datetime.fromtimestamp(state.until, UTC))}" if state.until else ""
    return f"{link.name}{until}{f' ({state.kind})' if state.kind else ''}"


def _notes(status: Status) -> Iterator[Text]:
    for note in status.notes:
        # Not one_line: the gap before a command is meant.
        yield Text.assemble(_label("note"), note)
    for alarm in status.alarms:
        yield Text.assemble(_label("note"), (alarm, "yellow"))


def _documents(status: Status, most: int, width: int) -> Iterator[RenderableType]:
    if not status.documents:
        return
    urgency = {state: place for place, state in enumerate(_URGENT)}
    listed = sorted(status.documents, key=lambda one: urgency.get(one.state, len(urgency)))
    yield Text()
    yield documents_table(listed[:most], width)
    more = len(listed) - most
    if more > 0:
        yield Text(f"… and {more:,} more:  tidegate status --limit {len(listed)}", style="dim")


def _label(word: str) -> Text:
    return Text(f"{word:<8}", style="dim")
