"""What `octavo` says with its exit code."""

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
