"""The exit codes of `octavo`."""

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
