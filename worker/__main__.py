"""``python -m worker`` is ``tidegate``."""

from __future__ import annotations

import sys

from worker.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
