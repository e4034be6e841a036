"""A child of the pool that does what its job says, without a model."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import orjson

from pipeline.providers.local.frames import HEADER


def main() -> None:
    source, out = sys.stdin.buffer, sys.stdout.buffer
    while len(header := source.read(HEADER.size)) == HEADER.size:
        job_size, payload_size = HEADER.unpack(header)
        job = orjson.loads(source.read(job_size))
        payload = source.read(payload_size)
        match job["do"]:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "crash" if not os.path.exists(job["unless"]):
                Path(job["mark"]).touch()
                os.kill(os.getpid(), signal.SIGSEGV)
            case "sleep":
                time.sleep(job["s"])
            case "babble":
                os.write(1, b"\xff" * 64)
        answer = job.get("answer") or {"pid": os.getpid(), "bytes": len(payload), "environment": sorted(os.environ)}
        body = orjson.dumps(answer)
        out.write(HEADER.pack(len(body), 0) + body)
        out.flush()


if __name__ == "__main__":
    main()
