"""Writes docs/status.schema.json from the structs of the scheduler's status.

Run it with the package installed: `python tools/generate_status_schema.py`. A test compares the file with what this would write.
"""

import json
import sys
from pathlib import Path

from luftpause.scheduler.status import schema

TARGET = Path(__file__).resolve().parent.parent / "docs" / "status.schema.json"


def page() -> str:
    """The whole file."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(page())
    sys.stdout.write(f"{TARGET}\n")
