"""What must hold after any fault, read from the rows and from the model server's own log.

``check(stack)`` is called when everything has ended (``stack.wait_ended()``). It first waits for what follows a run's
end within moments (leases given back, a dead worker's attempts closed), then reports everything that is wrong at once,
with the rows and the ends of the logs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.adapters.embedder import PROBE_TEXT
from pipeline.failover.registry import PERMIT_TTL_S
from pipeline.registry import RedisRegistry, connect_to
from tests.fault.stack import MODELS, Fault, Stack, wait_for
from tests.upstream import Call

__all__ = ["check", "inputs_of", "open_inputs", "paid_again", "permits_held", "repeats"]

_LONG_AGO_S = 60.0
"""Older than any attempt that the reconciler spares as just begun (``store.workers.FRESH_S``)."""
_UNANSWERED = frozenset({"status", "rejected", "reset"})
"""The server did no work for these."""


def check(
    stack: Stack,
    *,
    ended: Mapping[int, str] | None = None,
    forgotten_attempts: int = 0,
    only_answers: bool = False,
) -> None:
    """Assert every invariant; needs a beat.

    Args:
        ended: The states that these runs must have ended in; every other run must be ``done`` and live.
        forgotten_attempts: Rows of attempts that a killed Postgres may have swallowed (they commit asynchronously),
            or left as running, so that they are closed as lost.
        only_answers: The models were made to fail: only calls that were answered well count as paid.
    """
    stack.wait_until(lambda: not stack.count("unit where state = 'leased'"))
    # The reconciler gives what has just begun half a minute; it has no need to be waited for.
    stack.pass_time(_LONG_AGO_S)
    stack.wait_until(lambda: not stack.count("attempt where outcome = 'running'"))
    # What Redis held or heard while it was frozen is given back within seconds; leases would lapse later than that.
    wait_for(lambda: not [*_permits(stack)], PERMIT_TTL_S / 2)
    wrong = [
        *_runs(stack, ended or {}),
        *_units(stack),
        *_generations(stack),
        *_permits(stack),
        *_paid(stack, only_answers),
        *_history(stack, forgotten_attempts),
    ]
    assert not wrong, "\n".join([*wrong, stack.state()])


def inputs_of(call: Call) -> list[str]:
    """What a call was paid for: a chat's messages, or each text of an embedding call but the probe."""
    if call.path.endswith("/embeddings"):
        given = call.request["input"]
        return [f"vector of {text!r}" for text in ([given] if isinstance(given, str) else given) if text != PROBE_TEXT]
    return [f"chat {call.model} {call.prompt_digest}"]


def open_inputs(fault: Fault) -> int:
    """How many inputs the calls carried that were open at a fault."""
    return sum(len(inputs_of(call)) for call in fault.calls)


def repeats(stack: Stack) -> Counter[str]:
    """Inputs that the server answered well more than once, with how many times too many."""
    return _beyond_the_first(call for call in stack.models.calls() if call.outcome == "ok")


def paid_again(stack: Stack) -> Counter[str]:
    """The same of every call that the server worked on, those that nobody waited for included."""
    return _beyond_the_first(call for call in stack.models.calls() if call.outcome not in _UNANSWERED)


def permits_held(stack: Stack) -> dict[str, int]:
    """Calls in flight by target, as the registry has them; those with none are left out."""

    async def ask() -> dict[str, int]:
        container = stack.container
        registry = RedisRegistry(
            connect_to(stack.servers.redis_url, 5.0), container.key_prefix, rng=lambda: 0.5, timeout_s=5
        )
        try:
            found = await registry.statuses(container.chains.targets)
        finally:
            await registry.aclose()
        return {status.target: status.in_flight for status in found if status.in_flight}

    return asyncio.run(ask())


def _beyond_the_first(calls: Iterator[Call]) -> Counter[str]:
    times = Counter(key for call in calls for key in inputs_of(call))
    return Counter({key: count - 1 for key, count in times.items() if count > 1})


def _runs(stack: Stack, ended: Mapping[int, str]) -> Iterator[str]:
    rows = stack.rows(
        "select run.id, run.state, run.failure_kind, document.live_run_id "
        "from run join document on document.id = run.document_id order by run.id"
    )
    for row in rows:
        wanted = ended.get(row.id, "done")
        if row.state != wanted:
            yield f"run {row.id} is {row.state} ({row.failure_kind}), not {wanted}"
        elif row.id not in ended and row.live_run_id != row.id:
            yield f"run {row.id} is done, but its document shows {row.live_run_id}"


def _units(stack: Stack) -> Iterator[str]:
    for row in stack.rows(
        "select unit.* from unit join run on run.id = unit.run_id "
        "where (run.state = 'done' and unit.state not in ('done', 'failed')) "
        "or unit.state = 'leased' or unit.lease_token is not null or unit.leased_by is not null "
        "or (unit.state = 'failed' and run.state = 'done' and not run.incomplete)"
    ):
        yield f"unit {row.run_id}/{row.stage}/{row.ordinal} is {row.state}, held by {row.leased_by}"


def _generations(stack: Stack) -> Iterator[str]:
    """Chunks of live runs are whole and single; of no other ended run are there any that a search could see."""
    for row in stack.rows("select run_id, ordinal, count(*) as n from chunk group by 1, 2 having count(*) > 1"):
        yield f"run {row.run_id} has chunk {row.ordinal} {row.n} times"
    for row in stack.rows(
        "select run.id, run.state, count(chunk.id) as chunks, count(distinct chunk.ordinal) as ordinals, "
        "min(chunk.ordinal) as first, max(chunk.ordinal) as last, "
        "(select count(*) from unit where run_id = run.id and stage = 'embed') as units "
        "from document join run on run.id = document.live_run_id left join chunk on chunk.run_id = run.id "
        "group by run.id, run.state"
    ):
        if row.state != "done":
            yield f"run {row.id} is visible and {row.state}"
        if not row.chunks == row.ordinals == row.units or row.last - row.first + 1 != row.chunks:
            yield f"run {row.id} has {row.chunks} chunks ({row.first}-{row.last}) and {row.units} units of embed"
    for row in stack.rows(
        "select chunk.run_id, chunk.ordinal, count(embedding.chunk_id) as vectors "
        "from chunk join document on document.live_run_id = chunk.run_id join run on run.id = chunk.run_id "
        "left join embedding on embedding.chunk_id = chunk.id and embedding.space_id = run.space_id "
        "group by 1, 2 having count(embedding.chunk_id) <> 1"
    ):
        yield f"chunk {row.run_id}/{row.ordinal} has {row.vectors} vectors"


def _permits(stack: Stack) -> Iterator[str]:
    """A dead process's permits lapse by themselves, after half a minute; nobody else's are left."""
    lost = sum(len(fault.calls) for fault in stack.faults if fault.worker)
    held = permits_held(stack)
    if sum(held.values()) > lost:
        yield f"permits at rest: {held}, of which {lost} may be the dead's"


def _paid(stack: Stack, only_answers: bool) -> Iterator[str]:
    """Nothing is paid twice but what was open when something broke."""
    open_then = sum(map(open_inputs, stack.faults))
    counts = [("answered again", repeats(stack))]
    if not only_answers:
        counts.append(("paid again", paid_again(stack)))
    for what, found in counts:
        if found.total() > open_then:
            yield f"{found.total()} inputs {what}, and {open_then} were open at the faults: {dict(found)}"
    if still := stack.open_calls():
        yield f"calls still open: {[(call.n, call.model) for call in still]}"


def _history(stack: Stack, forgotten: int) -> Iterator[str]:
    """Attempts say what the server's log says, and a lost one names the worker that died."""
    # A lease that was lost without a call is an attempt that names no target.
    rows = stack.rows(
        "select id, role, preset, outcome, worker from attempt where outcome <> 'exhausted' and target is not null"
    )
    calls = stack.models.calls()
    lost = [row for row in rows if row.outcome == "lost"]
    for model in MODELS.values():
        mine = [row for row in rows if _model_of(row) == model]
        mine_lost = sum(row.outcome == "lost" for row in mine)
        theirs = [call for call in calls if call.model == model]
        ours_ok, theirs_ok = (sum(one.outcome == "ok" for one in side) for side in (mine, theirs))
        # A row is committed before its call: some of the dead's were never sent, and none was sent without.
        if not len(theirs) - forgotten <= len(mine) <= len(theirs) + mine_lost:
            yield f"{model}: {len(theirs)} calls at the server, {len(mine)} attempts, {mine_lost} of them lost"
        if not ours_ok <= theirs_ok <= ours_ok + mine_lost + forgotten:
            yield f"{model}: {theirs_ok} calls answered, {ours_ok} attempts ok, {mine_lost} lost"
    dead = {fault.worker for fault in stack.faults} | {name for one in stack.programs for name in one.aliases}
    of_the_living = [row for row in lost if row.worker not in dead]
    if len(of_the_living) > forgotten:
        for row in of_the_living:
            yield f"attempt {row.id} is lost, but {row.worker} was not killed"


def _model_of(row: Any) -> str:
    return str(row.preset) if row.preset in MODELS.values() else MODELS[row.role]
