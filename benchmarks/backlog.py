"""A backlog of 100,000 documents: taking them in, handing them out, looking at them; and who gets served meanwhile.

    python -m benchmarks.backlog [--quick] [--only SECTION] [--json FILE] [--check]

``enqueue`` runs the real command as a process of its own over an embedded Postgres and Valkey that are durable (fsync
on, for them and for the blobs), while a fleet that takes nothing is registered: what is handed out stays in Redis to be
counted. Beside its rate stand what the parts reach alone: COPY of the same rows into tables with the same indexes, and
the blobs one by one, each with its own fsync. The time to dispatch the next document is measured in turns in a database
where all of them wait and in one where 1,000 do. ``fleet`` (``benchmarks.fleet``) runs real workers over servers
without fsync: two collections, an urgent document, and a role that hangs.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import psycopg
import redis
from rich.console import Console
from sqlalchemy import text
from sqlalchemy.engine import make_url

from benchmarks.finding import Finding
from benchmarks.machine import machine
from benchmarks.place import Place, open_place
from pipeline.dispatch import DispatchPolicy, dispatch
from pipeline.domain.unit import QUEUES
from pipeline.store.blobs import BlobSource
from pipeline.store.file_blobs import FileBlobs
from pipeline.store.session import Sessions, make_engine, make_sessions
from pipeline.store.workers import beat

__all__ = ["main", "measure_enqueue"]

FEW = 1_000
SLOTS = 32
WINDOW = int(DispatchPolicy().window_per_slot * SLOTS)
_A_FOLDER = 1_000
_BEAT_S = 2.0
_BLOBS_ALONE = 2_000
_COPIED = {
    "document": "id, collection_id, batch_id, source_uri, blob_digest, media_type, size_bytes",
    "run": "id, document_id, collection_id, batch_id, blob_digest, media_type, recipe, recipe_digest, space_id",
}


@contextmanager
def _idle_fleet(*sessions: Sessions) -> Iterator[None]:
    """Rows of workers that live and take nothing, so that the window is what it would be."""
    ended = threading.Event()

    def say() -> None:
        for each in sessions:
            with each.begin() as session:
                for queue in QUEUES:
                    names = [queue.value]
                    beat(session, queue, role="worker", host="-", pid=1, queues=names, slots=SLOTS, cpu_slots=SLOTS)

    def go_on() -> None:
        while not ended.wait(_BEAT_S):
            say()

    say()
    thread = threading.Thread(target=go_on, name="idle fleet")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def write_documents(folder: Path, first: int, count: int) -> Path:
    """Small Markdown files, each unlike any other, a thousand a folder."""
    for number in range(first, first + count):
        inner = folder / f"{number // _A_FOLDER:04}"
        if number % _A_FOLDER == 0 or number == first:
            inner.mkdir(parents=True, exist_ok=True)
        (inner / f"note{number:07}.md").write_text(
            f"# Note {number}\n\nThe gate was opened {number} minutes after low water, and closed again.\n"
        )
    return folder


def copy_rate(database_url: str, rows: int) -> float:
    """Pairs of a document and a run a second that COPY alone writes into tables with the same columns and indexes."""
    plain = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        for table in _COPIED:
            connection.execute(f"create table copied_{table} (like {table} including all)".encode())
        recipe, space = connection.execute("select recipe::text, space_id from run limit 1").fetchone() or ("{}", 1)
        digest = "a" * 64
        began = time.perf_counter()
        with connection.transaction(), connection.cursor() as cursor:
            ids = [
                str(row[0]) for row in cursor.execute("select gen_random_uuid() from generate_series(1, %s)", [rows])
            ]
            with cursor.copy(f"copy copied_document ({_COPIED['document']}) from stdin".encode()) as copy:
                for number, document in enumerate(ids):
                    copy.write_row((document, 1, 1, f"/a/folder/note{number:07}.md", digest, "text/markdown", 90))
            with cursor.copy(f"copy copied_run ({_COPIED['run']}) from stdin".encode()) as copy:
                for number, document in enumerate(ids):
                    copy.write_row((number, document, 1, 1, digest, "text/markdown", recipe, digest, space))
        seconds = time.perf_counter() - began
        for table in _COPIED:
            connection.execute(f"drop table copied_{table}".encode())
    return rows / seconds


def blob_rates(place: Place, files: int) -> tuple[float, float]:
    """Files a second into the blob store: all at once, and one by one in 16 threads, both with their fsync."""
    paths = sorted(write_documents(place.folder / "blobs-alone", 10_000_000, files).rglob("*.md"))
    sources = [
        BlobSource(path, hashlib.sha256(data).hexdigest(), len(data), data)
        for path, data in ((path, path.read_bytes()) for path in paths)
    ]
    at_once, singly = FileBlobs(place.folder / "blobs-at-once"), FileBlobs(place.folder / "blobs-singly")
    began = time.perf_counter()
    for first in range(0, files, _A_FOLDER):
        at_once.put_all(sources[first : first + _A_FOLDER])
    half = time.perf_counter()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda one: singly.put_all([one]), sources))
    ended = time.perf_counter()
    return files / (half - began), files / (ended - half)


def dispatch_times(many: Sessions, few: Sessions, turns: int) -> tuple[list[float], list[float]]:
    """Seconds to hand out one document when a slot gets free, in turns in both databases."""
    times: tuple[list[float], list[float]] = ([], [])
    # A wake that ends in between would be more than one free slot.
    policy = DispatchPolicy(wake_ttl_s=24 * 3600)
    for sessions in (many, few):
        with sessions.begin() as session:
            session.execute(text("update unit set dispatched_at = null where dispatched_at is not null"))
        dispatch(sessions, lambda _: None, policy)
    for turn in range(turns + 1):
        for sessions, found in zip((many, few), times, strict=True):
            with sessions.begin() as session:
                session.execute(text(_END_ONE))
            began = time.perf_counter()
            handed = dispatch(sessions, lambda _: None, policy)
            seconds = time.perf_counter() - began
            if handed != 1:
                msg = f"{handed} slices were handed out for one free slot"
                raise RuntimeError(msg)
            # The first one meets cold caches and statements that are not prepared.
            if turn:
                found.append(seconds)
    return times


_END_ONE = """
    update unit set state = 'done', finished_at = now()
    where id = (select id from unit where state = 'pending' and dispatched_at is not null order by id limit 1)
"""


def messages_in(redis_url: str) -> tuple[int, float]:
    """Messages in Redis' lists, and its memory in MB."""
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    try:
        lists = client.scan_iter(count=1000, _type="list")
        count = sum(int(client.llen(key)) for key in lists)
        return count, int(client.info("memory")["used_memory"]) / (1 << 20)
    finally:
        client.close()


def measure_enqueue(documents: int, *, turns: int = 100, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Enqueue so many documents with the real command, and look at what they are then.

    Args:
        turns: How often the dispatch of one document is timed in each database.

    Raises:
        RuntimeError: The command failed.
    """
    with open_place() as place:
        urls = [place.database("many"), place.database("few")]
        engines = [make_engine(url, pool_size=4) for url in urls]
        many, few = (make_sessions(engine) for engine in engines)
        try:
            with _idle_fleet(many, few):
                return _enqueued(place, urls, many, few, documents, turns, say)
        finally:
            for engine in engines:
                engine.dispose()


def _enqueued(
    place: Place,
    urls: Sequence[str],
    many: Sessions,
    few: Sessions,
    documents: int,
    turns: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    say(f"writing {documents:,} files")
    folder = write_documents(place.folder / "documents", 0, documents)
    say("a first enqueue, of what few documents wait")
    place.command(urls[1], "enqueue", str(write_documents(place.folder / "few", 20_000_000, FEW)), "--recursive")
    before, _ = messages_in(place.valkey.url)
    say(f"enqueue of {documents:,}")
    whole = place.command(urls[0], "enqueue", str(folder), "--recursive", "--json")
    say(f"{documents / whole.seconds:,.0f} documents/s, {whole.cpu_s:.1f} s of CPU, {whole.peak_mb:.0f} MB")
    held, redis_mb = messages_in(place.valkey.url)
    counts = orjson.loads(whole.out)["counts"]
    if counts != {"queued": documents, "unchanged": 0, "rejected": 0}:
        msg = f"not every document was accepted: {counts}"
        raise RuntimeError(msg)
    say("status")
    looks = {
        "json": [place.command(urls[0], "status", "--json") for _ in range(5)],
        "text": [place.command(urls[0], "status") for _ in range(5)],
        "none": [place.command(urls[0], "--version") for _ in range(5)],
    }
    seconds = {name: statistics.median(ran.seconds for ran in runs) for name, runs in looks.items()}
    say("dispatch, in turns")
    with_many, with_few = dispatch_times(many, few, turns)
    say("the same files again, and the parts alone")
    again = place.command(urls[0], "enqueue", str(folder), "--recursive")
    copied = copy_rate(urls[0], documents)
    blobs_at_once, blobs_singly = blob_rates(place, min(documents, _BLOBS_ALONE))
    rate = documents / whole.seconds
    ratio = statistics.median(with_many) / statistics.median(with_few)
    findings = [
        Finding("enqueue, new files", rate, 2_000, "documents/s", least=True),
        Finding("its peak memory, --json", whole.peak_mb, 300, "MB"),
        Finding("messages in Redis", held - before, WINDOW, "of the window"),
        Finding(f"dispatch of the next, {documents:,} waiting ÷ {FEW:,} waiting", ratio, 1.5, "×"),
        Finding("status --json", seconds["json"], 1.0, "s"),
        Finding("status", seconds["text"], 1.0, "s"),
    ]
    return {
        "fsync": "on: Postgres (fsync and synchronous_commit), blobs (before their slice commits), Valkey everysec",
        "documents": documents,
        "findings": findings,
        "beside": {
            "enqueue_cpu_s": whole.cpu_s,
            "enqueue_again_per_s": documents / again.seconds,
            "copy_alone_pairs_per_s": copied,
            "enqueue_of_copy_alone": rate / copied,
            "blobs_at_once_per_s": blobs_at_once,
            "blobs_singly_per_s": blobs_singly,
            "dispatch_ms_many": statistics.median(with_many) * 1000,
            "dispatch_ms_few": statistics.median(with_few) * 1000,
            "redis_mb": redis_mb,
            "status_json_cpu_s": statistics.median(ran.cpu_s for ran in looks["json"]),
            "command_that_does_nothing_s": seconds["none"],
        },
    }


def _print(console: Console, section: str, found: dict[str, Any]) -> None:
    console.print(f"{section} · fsync {found['fsync']}", highlight=False)
    for finding in found["findings"]:
        console.print(f"  {finding}", highlight=False)
    for name, value in found["beside"].items():
        console.print(f"         {name.replace('_', ' ')}: {value:,.4g}", highlight=False, style="dim")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 when ``--check`` was given and a bar was missed."""
    from benchmarks.fleet import measure_fleet

    parser = argparse.ArgumentParser(prog="python -m benchmarks.backlog", description=__doc__)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="a few documents and turns: does it run at all")
    parser.add_argument("--only", choices=["enqueue", "fleet"], help="this section alone")
    parser.add_argument("--json", type=Path, help="write everything here")
    parser.add_argument("--check", action="store_true", help="fail when a bar is missed")
    given = parser.parse_args(arguments)

    def say(line: str) -> None:
        print(line, file=sys.stderr)

    documents = min(given.documents, 2 * FEW) if given.quick else given.documents
    before = machine()
    sections: dict[str, dict[str, Any]] = {}
    if given.only != "fleet":
        sections["enqueue"] = measure_enqueue(documents, turns=10 if given.quick else 100, say=say)
    if given.only != "enqueue":
        sections["fleet"] = measure_fleet(quick=given.quick, say=say)
    after = machine()["load"]
    if given.json is not None:
        shown = {
            name: {**found, "findings": [{**asdict(one), "held": one.held} for one in found["findings"]]}
            for name, found in sections.items()
        }
        document = {"machine": before, "load_after": after, "sections": shown}
        given.json.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    console = Console(width=None if sys.stdout.isatty() else 200)
    for name, found in sections.items():
        _print(console, name, found)
    console.print(
        f"{before['cpu']}, {before['cores']} cores, load {before['load'][0]} before and {after[0]} after, "
        f"Python {before['python']}",
        highlight=False,
    )
    held = all(finding.held for found in sections.values() for finding in found["findings"])
    return 1 if given.check and not held else 0


if __name__ == "__main__":
    sys.exit(main())
