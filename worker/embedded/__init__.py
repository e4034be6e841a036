"""The embedded stack: Postgres and Valkey from wheels, and the supervisor that runs them with Tidegate's processes."""

from worker.embedded.control import start_detached, stop_stack
from worker.embedded.home import Home
from worker.embedded.part import Part, Step
from worker.embedded.postgres import EmbeddedPostgres
from worker.embedded.process import ProcessId
from worker.embedded.state import Stack, StackPart, read_stack
from worker.embedded.supervisor import Supervisor
from worker.embedded.valkey import EmbeddedValkey, broker_url

__all__ = [
    "EmbeddedPostgres",
    "EmbeddedValkey",
    "Home",
    "Part",
    "ProcessId",
    "Stack",
    "StackPart",
    "Step",
    "Supervisor",
    "broker_url",
    "read_stack",
    "start_detached",
    "stop_stack",
]
