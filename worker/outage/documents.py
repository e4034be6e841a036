"""Documents that come in while the primaries fail: sheets of a log that nobody keeps, each with facts of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from html import escape
from pathlib import Path

from worker.outage.script import Mode, Script

__all__ = ["Arrival", "feed", "write_sheets"]

_FIRST_DAY = date(2025, 3, 1)
_KEEPERS = ("Lowenna Bright", "Jago Penrose", "Morwen Hale", "Petroc Lyle", "Senara Voss")
_GATES = ("north gate", "south gate", "Cobbler's Sluice", "Eel Pass")
_WINDS = ("a light westerly", "a fresh northerly", "fog and no wind", "a gale from the south-west", "rain and a breeze")
_WORKS = (
    "The seal of the {gate} was greased and its lower hinge measured: {play} mm of play, {left} mm are left before it "
    "must be replaced.",
    "A raft of weed was raked off the screen of the {gate}. It filled {loads} barrows and was taken to the allotments.",
    "The hydraulic pressure at the {gate} stood at {bar} bar in the morning and fell to {low} bar by the evening; the "
    "accumulator was topped up with nitrogen.",
    "The lamp above the {gate} went out at half past {hour}. The bulb of {watt} watts was replaced, and the spare box "
    "now holds {loads} of them.",
)
_AFTER_S = 1.5


@dataclass(frozen=True, slots=True)
class Arrival:
    """A document and when it comes in, in seconds after the script's begin."""

    at_s: float
    path: Path


def write_sheets(folder: Path, count: int) -> list[Path]:
    """Write ``count`` sheets: Markdown, HTML and plain text in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(count):
        suffix, render = _FORMATS[number % len(_FORMATS)]
        path = folder / f"gate-log-{number + 1:03d}{suffix}"
        path.write_text(render(_sheet(number)), encoding="utf-8")
        paths.append(path)
    return paths


def feed(
    sheets: Sequence[Path], others: Sequence[Path], scans: Sequence[Path], script: Script, feed_s: float
) -> list[Arrival]:
    """When each document comes in: the sheets evenly over ``feed_s``, the others at the begin.

    A scan takes seconds to read, so of these one comes at the begin, one while the primaries are busy, and one after
    they have recovered.
    """
    busy = script.first(Mode.BUSY)
    looks_s = [0.0, (busy.begins_s if busy else 0.0) + _AFTER_S, script.recovers_s + _AFTER_S]
    arrivals = [Arrival(looks_s[index % len(looks_s)], path) for index, path in enumerate(scans)]
    arrivals += [Arrival(0.0, path) for path in others]
    arrivals += [Arrival(index * feed_s / len(sheets), path) for index, path in enumerate(sheets)]
    return sorted(arrivals, key=lambda arrival: arrival.at_s)


@dataclass(frozen=True, slots=True)
class _Sheet:
    title: str
    opening: str
    levels: tuple[tuple[str, str, str], ...]
    works: str
    closing: str


def _sheet(number: int) -> _Sheet:
    day = _FIRST_DAY + timedelta(days=number)
    keeper = _KEEPERS[number % len(_KEEPERS)]
    gate = _GATES[number * 3 % len(_GATES)]
    high_m = 2.1 + 0.6 * math.sin(number / 14.77 * math.tau)
    levels = tuple(
        (f"{(2 + number + 6 * turn) % 24:02d}:{(7 * number + 25 * turn) % 60:02d}", name, f"{level:.2f} m")
        for turn, (name, level) in enumerate(
            [("high water", high_m), ("low water", 0.9 - high_m / 4), ("high water", high_m + 0.07)]
        )
    )
    work = _WORKS[number % len(_WORKS)].format(
        gate=gate,
        play=number % 7 + 1,
        left=9 - number % 7,
        loads=number % 11 + 2,
        bar=118 - number % 13,
        low=97 - number % 9,
        hour=("five", "six", "seven")[number % 3],
        watt=(40, 60, 75)[number % 3],
    )
    return _Sheet(
        title=f"Gate log of {day.day} {day:%B %Y}",
        opening=(
            f"{keeper} had the watch, with {_WINDS[number % len(_WINDS)]}. The gates were moved {number % 4 + 2} "
            f"times, and sheet {number + 1} of the log was begun at {5 + number % 3} in the morning."
        ),
        levels=levels,
        works=work,
        closing=(
            f"{number * 17 % 23 + 1} boats passed, the largest drew {1 + number % 9 / 10:.1f} m. The tolls came to "
            f"{number * 13 % 90 + 11} pounds and were locked into the red cabinet. {keeper} handed over to "
            f"{_KEEPERS[(number + 2) % len(_KEEPERS)]} at eight in the evening, and nothing was left to do."
        ),
    )


def _markdown(sheet: _Sheet) -> str:
    rows = "\n".join(f"| {' | '.join(row)} |" for row in sheet.levels)
    return (
        f"# {sheet.title}\n\n{sheet.opening}\n\n## Levels\n\n| Time | Water | Level |\n| --- | --- | --- |\n{rows}\n\n"
        f"## Work\n\n{sheet.works}\n\n## Traffic\n\n{sheet.closing}\n"
    )


def _html(sheet: _Sheet) -> str:
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in sheet.levels)
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(sheet.title)}</title></head><body>'
        f"<h1>{escape(sheet.title)}</h1><p>{escape(sheet.opening)}</p><h2>Levels</h2><table>"
        f"<tr><th>Time</th><th>Water</th><th>Level</th></tr>{rows}</table><h2>Work</h2><p>{escape(sheet.works)}</p>"
        f"<h2>Traffic</h2><p>{escape(sheet.closing)}</p></body></html>\n"
    )


def _plain(sheet: _Sheet) -> str:
    rows = "\n".join(f"{time}  {name:<10}  {level}" for time, name, level in sheet.levels)
    return f"{sheet.title}\n\n{sheet.opening}\n\n{rows}\n\n{sheet.works}\n\n{sheet.closing}\n"


_FORMATS = ((".md", _markdown), (".html", _html), (".txt", _plain))
