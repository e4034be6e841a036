"""`Upstream`, the face that all fakes share; `RemoteUpstream` and `UpstreamProcess` for a host in another process."""

import json
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from tests.upstream.act import Act
from tests.upstream.calls import Call, Want
from tests.upstream.script import Rule

_ROOT = Path(__file__).resolve().parents[2]

Do = int | str | Act | Mapping[str, Any]


class Upstream(ABC):
    """A fake host: where it is, how it behaves, what it has seen."""

    @property
    @abstractmethod
    def port(self) -> int:
        """The port that models are served on; it stays the same over `refuse` and `listen`."""

    @property
    @abstractmethod
    def control_port(self) -> int:
        """A port that answers `/control`."""

    @property
    def url(self) -> str:
        """The origin, `http://127.0.0.1:<port>`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL: the origin and `/v1`."""
        return f"{self.url}/v1"

    @property
    def control_url(self) -> str:
        return f"http://127.0.0.1:{self.control_port}/control"

    def behave(self, model: str, *do: Do, **conditions: Any) -> None:
        """Let the calls of `model` (a glob) be treated as told.

        One act lasts until cleared or limited; of several, each matching call takes the next, and then the rule is
        spent. The rule added last wins. `conditions` are the other fields of `Rule`: `path`, `calls`, `seconds`,
        `from_s`, `cycle`, `stream`, `authorization`, `prompt_contains`, `in_flight_above`, `input_tokens_above`.

        Raises:
            pydantic.ValidationError: an act or a condition that does not exist.
        """
        rule = Rule.model_validate({"model": model, "do": [Act.of(d) for d in do], **conditions})
        self.add([rule.model_dump(mode="json", exclude_defaults=True)])

    def refuse(self, seconds: float | None = None) -> None:
        """Close the listening socket and every connection, as a killed process does; come back after `seconds`."""
        self.add([{"do": "refuse", "seconds": seconds}])

    def listen(self) -> None:
        """Listen again after `refuse`."""
        self.add([{"do": "listen"}])

    def calls(
        self,
        model: str | None = None,
        *,
        path: str | None = None,
        outcome: str | None = None,
        ended: bool | None = None,
    ) -> list[Call]:
        """The calls seen, in order of arrival. `path` is matched at its end (`"/embeddings"`)."""
        return self.select(Want(model, path, outcome, ended))

    def wait_for_calls(
        self,
        n: int = 1,
        model: str | None = None,
        *,
        path: str | None = None,
        outcome: str | None = None,
        ended: bool | None = None,
        timeout_s: float = 30.0,
    ) -> list[Call]:
        """Block until at least `n` such calls were seen, and return them; TimeoutError names what was seen instead."""
        want = Want(model, path, outcome, ended)
        found = self.select(want, n, timeout_s)
        if len(found) < n:
            seen = [(c.model, c.path, c.act, c.outcome) for c in self.calls()]
            raise TimeoutError(f"{len(found)} of {n} calls matched {want} in {timeout_s} s; all calls: {seen}")
        return found

    @abstractmethod
    def add(self, items: list[dict[str, Any]]) -> None:
        """Add rules in their JSON form, as POST /control takes them; raises ValueError for one that is wrong."""

    @abstractmethod
    def clear(self, model: str | None = None) -> None:
        """Forget all rules, or those written for exactly this model."""

    @abstractmethod
    def reset(self) -> None:
        """Forget rules, answers and finished calls, and listen."""

    @abstractmethod
    def peak_in_flight(self, model: str | None = None) -> int:
        """The most calls served at one time since the last reset, of a model or of all."""

    @abstractmethod
    def select(self, want: Want, at_least: int = 0, timeout_s: float = 0.0) -> list[Call]:
        """The calls that pass the filter, after waiting for `at_least` of them for at most `timeout_s`."""


class RemoteUpstream(Upstream):
    """A host in another process, through its control API."""

    def __init__(self, port: int, control_port: int | None = None) -> None:
        self._port = port
        self._control_port = control_port or port

    @property
    def port(self) -> int:
        return self._port

    @property
    def control_port(self) -> int:
        return self._control_port

    def add(self, items: list[dict[str, Any]]) -> None:
        self._ask("POST", "/control", items)

    def clear(self, model: str | None = None) -> None:
        self._ask("DELETE", "/control", model=model)

    def reset(self) -> None:
        self._ask("POST", "/control/reset")

    def peak_in_flight(self, model: str | None = None) -> int:
        peak: int = self._ask("GET", "/control/peak", model=model)["peak"]
        return peak

    def select(self, want: Want, at_least: int = 0, timeout_s: float = 0.0) -> list[Call]:
        ended = None if want.ended is None else str(want.ended).lower()
        found = self._ask(
            "GET",
            "/control/calls",
            model=want.model,
            path=want.path,
            outcome=want.outcome,
            ended=ended,
            at_least=at_least,
            timeout_s=timeout_s,
        )
        return [Call.from_json(c) for c in found]

    def _ask(self, method: str, route: str, body: Any = None, **query: Any) -> Any:
        given = {k: v for k, v in query.items() if v is not None}
        connection = HTTPConnection("127.0.0.1", self.control_port, timeout=30 + float(given.get("timeout_s", 0)))
        try:
            connection.request(method, f"{route}?{urlencode(given)}", None if body is None else json.dumps(body))
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        if response.status >= 400:
            raise ValueError(f"the fake upstream refused {body!r}: {answer.get('error', answer)}")
        return answer


class UpstreamProcess(RemoteUpstream):
    """A host in a process of its own, which ends with this one."""

    def __init__(self, *, dim: int = 256, port: int = 0) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.upstream",
            "--until-stdin-closes",
            "--port",
            str(port),
            "--dim",
            str(dim),
        ]
        self._process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.stop()
            raise RuntimeError(f"the fake upstream did not start on port {port}; its error is above")
        where = json.loads(line)
        super().__init__(where["port"], where["control_port"])

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """End the process and wait for it."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
