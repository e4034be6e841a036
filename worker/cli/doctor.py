"""``doctor``: everything that has to be right, looked at one by one, each with what helps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from pipeline.domain.errors import TidegateError
from worker.cli.example import example
from worker.cli.session import set_up
from worker.cli.terminal import Terminal, one_line, terminal_of

if TYPE_CHECKING:
    from pipeline.settings import Settings
    from worker.bootstrap import Container

__all__ = ["register"]

_STYLES = {"ok": "green", "warning": "yellow", "failed": "red", "skipped": "dim"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=example("tidegate doctor", "tidegate doctor --json"))(doctor)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        state: ``ok``, ``warning``, ``failed``, or ``skipped`` because another check failed.
        remedy: What helps; empty where nothing has to.
    """

    check: str
    state: str
    detail: str
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"check": self.check, "state": self.state, "detail": self.detail, "remedy": self.remedy or None}


def doctor(context: typer.Context) -> None:
    """Check that everything is as it has to be.

    That is the configuration, Postgres, Redis, the blobs, the beat, the queues and the targets. Exit code 1 when a
    check failed.
    """
    from worker.bootstrap import open_container

    terminal = terminal_of(context)
    settings = set_up(terminal, level="error")
    with open_container(settings, name="tidegate doctor") as container:
        findings = list(_findings(settings, container))
    ok = not any(finding.state == "failed" for finding in findings)
    terminal.emit({"ok": ok, "checks": [finding.to_json() for finding in findings]})
    _say(terminal, findings)
    raise typer.Exit(0 if ok else 1)


def _findings(settings: Settings, container: Container) -> Iterator[Finding]:
    config = _tried("config", lambda: _config(settings))
    yield config
    services = _tried("services", lambda: _services(container))
    yield services
    later: list[tuple[str, Callable[[], Finding]]] = [
        ("postgres", lambda: _postgres(container)),
        ("redis", lambda: _redis(container)),
        ("blobs", lambda: _blobs(container)),
        ("beat", lambda: _beat(container)),
        ("queues", lambda: _queues(container)),
        ("targets", lambda: _targets(container)),
        ("budgets", lambda: _budgets(container)),
        ("spaces", lambda: _spaces(container)),
    ]
    down = {"services"} if services.state == "failed" else set()
    down |= {"config"} if config.state == "failed" else set()
    for name, check in later:
        missing = down & _needs(name)
        if missing:
            yield Finding(name, "skipped", f"not looked at: {' and '.join(sorted(missing))} failed")
            continue
        finding = _tried(name, check)
        if finding.state == "failed":
            down.add(name)
        yield finding


def _needs(check: str) -> set[str]:
    return {
        "beat": {"services", "postgres"},
        "queues": {"services", "postgres"},
        "targets": {"services", "config", "postgres", "redis"},
        "spaces": {"services", "config", "postgres"},
        "budgets": {"services", "config", "postgres"},
    }.get(check, {"services"})


def _tried(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except TidegateError as error:
        fact, _, remedy = str(error).partition("\n")
        return Finding(name, "failed", fact, remedy)


def _config(settings: Settings) -> Finding:
    from pipeline.config.load import load_config

    # As strict as a worker: a key that is not set fails the calls.
    loaded = load_config(settings, missing_keys="refuse")
    where = str(loaded.file) if loaded.file else "none: the built-in local chains"
    if loaded.warnings:
        return Finding("config", "warning", f"{where}; {'; '.join(loaded.warnings)}", "tidegate config check")
    return Finding("config", "ok", where)


def _services(container: Container) -> Finding:
    from worker.embedded import read_stack

    addresses = container.addresses
    if not addresses.embedded:
        return Finding("services", "ok", "named by TIDEGATE_DATABASE_URL and TIDEGATE_REDIS_URL")
    stack = read_stack(container.settings.home)
    late = [part.name for part in stack.parts if part.state != "ready"] if stack else []
    detail = f"embedded, under {container.settings.home}"
    if late:
        logs = container.settings.home / "logs"
        return Finding("services", "warning", f"{detail}; not running: {', '.join(late)}", f"see the logs in {logs}")
    return Finding("services", "ok", detail)


def _postgres(container: Container) -> Finding:
    from pipeline.store.revisions import check_schema, schema_revision
    from pipeline.store.versions import server_versions

    with container.sessions() as session:
        versions = server_versions(session)
    if versions.read_only:
        remedy = "point TIDEGATE_DATABASE_URL at the primary server; or look at default_transaction_read_only"
        return Finding("postgres", "failed", "it is read-only", remedy)
    check_schema(container.engine)
    revision = schema_revision(container.engine)
    if versions.pgvector is None:
        return Finding("postgres", "failed", "it has no pgvector extension", "tidegate db upgrade")
    return Finding("postgres", "ok", f"PostgreSQL {versions.postgres}, pgvector {versions.pgvector}, schema {revision}")


def _redis(container: Container) -> Finding:
    from worker.services import redis_info, redis_refusal

    url = container.addresses.redis_url
    info = redis_info(url)
    name = "Valkey" if info.get("server_name") == "valkey" else "Redis"
    version = info.get("valkey_version") or info.get("redis_version")
    refusal = redis_refusal(url)
    if refusal is not None:
        return Finding(
            "redis",
            "failed",
            f"{name} {version} takes no writes: {refusal}",
            "make room, or raise maxmemory; if it is a replica, point TIDEGATE_REDIS_URL at the master",
        )
    policy = info.get("maxmemory_policy")
    if policy not in (None, "noeviction"):
        return Finding(
            "redis",
            "warning",
            f"{name} {version} may drop messages when memory is short (maxmemory-policy {policy})",
            "set maxmemory-policy to noeviction",
        )
    return Finding("redis", "ok", f"{name} {version}")


def _blobs(container: Container) -> Finding:
    # Only opened: opening makes the folder and finds out whether it can be written.
    _ = container.blobs
    return Finding("blobs", "ok", container.addresses.blob_url)


def _beat(container: Container) -> Finding:
    from pipeline.store.fleet import pulse

    with container.reads() as reader:
        found = pulse(reader)
    if found.trouble:
        return Finding("beat", "failed", found.trouble, "tidegate up, or tidegate beat")
    return Finding("beat", "ok", f"{found.name}, {found.silent_s:.0f} s ago")


def _queues(container: Container) -> Finding:
    from pipeline.store.fleet import slots_by_queue

    with container.reads() as reader:
        slots = slots_by_queue(reader)
    idle = [queue.value for queue, count in slots.items() if not count]
    if idle:
        names = ",".join(idle)
        return Finding(
            "queues",
            "failed",
            f"no worker takes from {', '.join(idle)}",
            f"tidegate up, or tidegate worker --queues {names}",
        )
    return Finding("queues", "ok", ", ".join(f"{queue.value} {count}" for queue, count in slots.items()) + " slots")


def _targets(container: Container) -> Finding:
    from pipeline.adapters.watch import room_of
    from worker.cli.models import calls_of
    from worker.cli.targets import target_rows

    with calls_of(container) as made:
        rows = {row["target"]: row for row in target_rows(container, made)}
        states = made.statuses()
    away = {key: row for key, row in rows.items() if row["state"] != "closed"}
    closed = [
        role
        for role, chain in container.chains.by_role.items()
        if not room_of([states[target.key] for target in chain.targets if rows[target.key]["state"] != "disabled"]).room
    ]
    names = ", ".join(_described(row) for row in away.values())
    if closed:
        return Finding(
            "targets", "failed", f"no target of {', '.join(closed)} takes calls: {names}", "tidegate targets"
        )
    if away:
        return Finding("targets", "warning", f"{len(away)} of {len(rows)} take no calls: {names}", "tidegate targets")
    return Finding("targets", "ok", f"{len(rows)} take calls; to try each one:  tidegate targets check")


def _spaces(container: Container) -> Finding:
    from pipeline.spaces import space_standing

    found = space_standing(container.reads, lambda: container.space)
    off = [one for one in found if one.note]
    if off:
        facts = "; ".join(one.note.partition(":  ")[0] for one in off)
        commands = [one.command for one in off if one.command]
        return Finding("spaces", "warning", facts, commands[0] if commands else "")
    if not found:
        return Finding("spaces", "ok", f"nothing is embedded yet; {container.space.model} will do it")
    collections: defaultdict[str, list[str]] = defaultdict(list)
    for one in found:
        collections[str(one.report.active)].append(one.report.collection)
    return Finding("spaces", "ok", "; ".join(f"{', '.join(names)} by {space}" for space, names in collections.items()))


def _budgets(container: Container) -> Finding:
    from pipeline.budgets import budget_standing

    found = budget_standing(container.reads, container.budget_usd)
    used_up = [one.note for one in found if one.note]
    if used_up:
        return Finding(
            "budgets",
            "warning",
            "; ".join(used_up),
            "raise what it names, then:  tidegate down && tidegate up --detach",
        )
    spent = ", ".join(f"{one.collection} ${one.spent_usd:,.2f}" for one in found)
    return Finding("budgets", "ok", f"spent: {spent}" if spent else "nothing was spent yet")


def _described(row: dict[str, Any]) -> str:
    kind = f" ({row['kind']})" if row["kind"] else ""
    state = str(row["state"]).replace("half_open", "to be probed")
    return f"{row['preset']} {state}{kind}"


def _say(terminal: Terminal, findings: list[Finding]) -> None:
    from rich.text import Text

    rows: list[tuple[str, object]] = []
    for finding in findings:
        state = (f"{finding.state:<9}", _STYLES[finding.state] if terminal.is_tty else "")
        rows.append((finding.check, Text.assemble(state, one_line(finding.detail))))
        if finding.remedy:
            rows.append(("", Text(f"{'':<9}→ {one_line(finding.remedy)}")))
    terminal.facts(rows)
