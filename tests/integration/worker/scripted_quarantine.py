"""A quarantine's child that does as its word says: ``answers``, ``ends`` when given a slice, or ``fails`` to start."""

from __future__ import annotations

import json
import os
import sys


def main(act: str) -> int:
    if act == "fails":
        return 3
    print(json.dumps({"ready": f"quarantine-{os.getpid()}@here"}), flush=True)
    for line in sys.stdin:
        if act == "ends":
            return 0
        print(json.dumps({"counts": {"done": 1}, "text": line, "made_work": True, "away": None}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
