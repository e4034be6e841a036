"""An outage for people: a live picture on a terminal, lines elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING

from pipeline.failover.registry import BreakerState
from worker.cli.bars import bar
from worker.cli.terminal import Column, Terminal, make_table, one_line
from worker.cli.times import clock, duration
from worker.outage.glimpse import Glimpse, TargetGlimpse
from worker.outage.ledger import Switched
from worker.outage.script import Mode

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from worker.outage.run import Outage

__all__ = ["Show", "Teller", "costs", "display", "picture", "say_sums"]

Show = Callable[[Glimpse], None]

_MODE_STYLES = {Mode.HEALTHY: "green", Mode.BUSY: "red", Mode.HANGING: "magenta"}
_STATE_STYLES = {BreakerState.CLOSED: "green", BreakerState.OPEN: "red", BreakerState.HALF_OPEN: "yellow"}
_CELLS_A_SECOND = 1
_MOST_CELLS = 12
_LAST_CELLS = 4
# What the picture has besides targets and switches, and the line that the cursor stands on.
_OTHER_LINES = 11
_LEAST_SWITCHES = 3
_WIDE = 94
"""From here on there is room for what each target is for."""
_PROGRESS_EVERY_S = 5.0


@contextmanager
def display(terminal: Terminal) -> Iterator[Show]:
    """Somewhere to show glimpses: a picture that stays on a terminal, else lines (on stderr with ``--json``)."""
    if terminal.is_watched:
        from rich.live import Live

        console = terminal.console
        last: list[Glimpse] = []
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

            def draw(glimpse: Glimpse) -> None:
                last[:] = [glimpse]
                live.update(picture(glimpse, console.width, console.height), refresh=True)

            yield draw
            # What stays may be longer than the terminal.
            live.update(*(picture(glimpse, console.width, None) for glimpse in last))
        return

    def say(line: str) -> None:
        terminal.print(line)
        # Whoever reads a pipe is to see it as it happens, too.
        terminal.flush()

    teller = Teller(terminal.note if terminal.as_json else say)
    yield teller.tell
    teller.finish()


def picture(glimpse: Glimpse, width: int, height: int | None) -> RenderableType:
    """The whole view, not higher than the terminal; with every switch where that has no height."""
    from rich.console import Group
    from rich.text import Text

    mode = glimpse.phase.mode
    switches = glimpse.ledger.switches
    if height is not None:
        room = max(_LEAST_SWITCHES, height - _OTHER_LINES - len(glimpse.targets))
        switches = switches[-room:]
    return Group(
        Text(),
        _timeline(glimpse),
        Text.assemble((f"{mode:<9}", _MODE_STYLES[mode]), f" {mode.words}{_left(glimpse)}"),
        Text(),
        _targets(glimpse, width),
        Text(),
        _switches(glimpse, switches, width),
        Text(),
        Text(f"documents {bar(glimpse.done, glimpse.total)} {_documents(glimpse)}"),
        Text(f"cost      {costs(glimpse)}"),
    )


def costs(glimpse: Glimpse) -> str:
    """Wasted calls, lost seconds, and how many calls were spared both."""
    ledger = glimpse.ledger
    calls = "call" if ledger.wasted == 1 else "calls"
    return f"{ledger.wasted} {calls} wasted · {ledger.lost_s:.1f} s lost · {ledger.passed_over} straight to a fallback"


def say_sums(terminal: Terminal, outage: Outage) -> None:
    """What it came to, in labelled lines."""
    end, ledger, served = outage.end, outage.end.ledger, outage.served_counts
    back_s = outage.back_after_s.get("text")
    back = "text did not come back" if back_s is None else f"text answered {duration(back_s)} after it had recovered"
    agrees = "the attempts say the same" if outage.agrees else "the attempts say otherwise"
    terminal.print()
    terminal.facts(
        [
            ("wasted", f"{ledger.wasted} calls on primaries that were busy or silent, {ledger.lost_s:.1f} s together"),
            ("spared", f"{ledger.passed_over} calls, which went straight to a fallback"),
            ("documents", f"{end.done} of {end.total} done, {outage.lost} lost"),
            ("degraded", f"{outage.degraded} pages and chunks were answered by a fallback"),
            ("back", back),
            (
                "checked",
                f"by the primaries' own log: {served['answered']} calls answered, {served['refused']} refused, "
                f"{served['dropped']} dropped; {agrees}",
            ),
            ("data", f"{outage.home}, anew at each run"),
        ]
    )
    terminal.line(f"That took {outage.seconds:.0f} s.")


class Teller:
    """Says what is new, a line each."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._phase: int | None = None
        self._states: dict[str, str] = {}
        self._said = 0
        self._progress_at = 0.0
        self._last: Glimpse | None = None

    def tell(self, glimpse: Glimpse) -> None:
        """Compare with what was said, and say the rest in order of time."""
        for at_s, text in sorted(self._news(glimpse), key=itemgetter(0)):
            self._say(f"{at_s:5.1f} s  {one_line(text)}")
        self._last = glimpse

    def finish(self) -> None:
        """Say how the documents stand at the end."""
        if self._last is not None:
            self._say(f"{self._last.elapsed_s:5.1f} s  {_documents(self._last)}")

    def _news(self, glimpse: Glimpse) -> Iterator[tuple[float, str]]:
        now_s = glimpse.elapsed_s
        index = glimpse.script.index_at(now_s)
        if index != self._phase:
            self._phase = index
            phase = glimpse.phase
            yield phase.begins_s, f"the primaries are {phase.mode}: {phase.mode.words}"
        for switched in glimpse.ledger.switches[self._said :]:
            yield glimpse.since_begin_s(switched.at), _said(glimpse, switched)
        self._said = len(glimpse.ledger.switches)
        for target in glimpse.targets:
            state = _state(target)
            # Nobody needs to be told that all is well at the beginning.
            if self._states.get(target.key, "closed") != state:
                why = f" ({target.kind})" if target.kind and target.state is BreakerState.OPEN else ""
                yield now_s, f"{target.preset} is {state}{why}"
            self._states[target.key] = state
        if now_s - self._progress_at >= _PROGRESS_EVERY_S:
            self._progress_at = now_s
            yield now_s, _documents(glimpse)


def _timeline(glimpse: Glimpse) -> Text:
    from rich.text import Text

    line = Text()
    for phase in glimpse.script.phases:
        lasts = math.isinf(phase.seconds)
        cells = _LAST_CELLS if lasts else max(2, min(_MOST_CELLS, round(phase.seconds * _CELLS_A_SECOND)))
        seconds = _LAST_CELLS if lasts else phase.seconds
        passed_s = max(0.0, min(glimpse.elapsed_s - phase.begins_s, seconds))
        is_now = glimpse.phase is phase
        style = _MODE_STYLES[phase.mode] if glimpse.elapsed_s >= phase.begins_s else "dim"
        line.append(f"{phase.mode} ", style=f"bold {style}" if is_now else style)
        line.append(f"{bar(round(passed_s * 100), round(seconds * 100), cells)}  ", style=style)
    line.append(f"{glimpse.elapsed_s:.0f} s")
    return line


def _left(glimpse: Glimpse) -> str:
    left_s = glimpse.phase.ends_s - glimpse.elapsed_s
    return "" if math.isinf(left_s) else f", for {max(0.0, left_s):.0f} s more"


def _targets(glimpse: Glimpse, width: int) -> RenderableType:
    from rich.text import Text

    wide = width >= _WIDE
    columns = [
        Column("target"),
        *([Column("for")] if wide else []),
        Column("state"),
        Column("why"),
        Column("in flight", right=True),
        Column("answers", right=True),
        Column("failed", right=True),
    ]
    # As wide as they may get, so that nothing moves about.
    rows = [
        (
            target.preset,
            *([", ".join(target.stages)] if wide else []),
            Text(f"{_state(target):<19}", style=_STATE_STYLES.get(target.state, "")),
            Text(f"{target.kind or '':<12}"),
            f"{target.in_flight}/{target.max_parallel}" if target.max_parallel else str(target.in_flight),
            target.answered,
            target.failed or "–",
        )
        for target in glimpse.targets
    ]
    return make_table(columns, rows, width)


def _state(target: TargetGlimpse) -> str:
    return f"open until {clock(target.until)}" if target.until else target.words


def _switches(glimpse: Glimpse, switches: tuple[Switched, ...], width: int) -> RenderableType:
    from rich.text import Text

    count = len(glimpse.ledger.switches)
    columns = [
        Column("at", right=True),
        Column("1 switch" if count == 1 else f"{count} switches"),
        Column("why"),
        Column("lost", right=True),
        Column("of", cut="end"),
    ]
    rows = [
        (
            Text(f"{glimpse.since_begin_s(one.at):.1f} s"),
            Text(f"{one.from_preset} → {one.to_preset or 'nobody'}"),
            one.reason,
            duration(one.seconds),
            f"{glimpse.document_of(one)}, {one.stage}",
        )
        for one in switches
    ]
    return make_table(columns, rows, width)


def _said(glimpse: Glimpse, one: Switched) -> str:
    return (
        f"{one.from_preset} → {one.to_preset or 'nobody'}: {one.reason} after {duration(one.seconds)}, "
        f"{one.stage} of {glimpse.document_of(one)}"
    )


def _documents(glimpse: Glimpse) -> str:
    parts = [f"{glimpse.done} done", f"{glimpse.under_way} under way", f"{glimpse.to_come} to come"]
    return f"{' · '.join(parts)} · {glimpse.lost} lost"
