"""Run a fake host: `python -m tests.upstream --port 0` prints one JSON line with its ports and serves until stopped."""

import argparse
import json
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

from tests.upstream.fake import FakeUpstream
from worker.signals import stop_on_signals


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--dim", type=int, default=256, help="width of the embeddings (default 256)")
    parser.add_argument("--models", default="fake-model", help="comma-separated names for GET /v1/models")
    parser.add_argument("--script", type=Path, help="a JSON file with rules, as POST /control takes them")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when the parent goes away")
    options = parser.parse_args()
    over = threading.Event()
    try:
        upstream = FakeUpstream(
            dim=options.dim, models=tuple(options.models.split(",")), port=options.port, control=True
        ).start()
    except OSError as e:
        print(f"cannot listen on 127.0.0.1:{options.port}: {e}", file=sys.stderr)
        return 4
    with stop_on_signals(over), ExitStack() as stack:
        stack.callback(upstream.stop)
        if options.script is not None:
            upstream.add(json.loads(options.script.read_text()))
        where = {"port": upstream.port, "control_port": upstream.control_port, "base_url": upstream.base_url}
        print(json.dumps(where), flush=True)
        if options.until_stdin_closes:
            threading.Thread(target=_watch_stdin, args=(over,), daemon=True).start()
        over.wait()
    return 0


def _watch_stdin(over: threading.Event) -> None:
    sys.stdin.buffer.read()
    over.set()


if __name__ == "__main__":
    raise SystemExit(main())
