"""Prints the JSON schema of `octavo plan --json`: docs/plan.schema.json."""

import json
import signal

import msgspec

from octavo.planning import PlanReport


def main() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "octavo plan --json",
        **msgspec.json.schema(PlanReport),
    }
    print(json.dumps(schema, indent=2))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
