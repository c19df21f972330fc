"""The disk tier: a log of large segments on an NVMe disk, within a hard budget, verified on every read.

    tier         the contract; all bookkeeping, on the engine's thread
    log          plans where records go, and which segment makes room; `deletions`: what is to go
    contents     which keys the tier has, and where; `segment`: one file of the log
    operations   what the engine's thread asks of the others, and what they answer
    writer       one thread: copies, writes, syncs, deletes, in the order of the plan; `write_behind` helps it
    reader       a few threads: read, verify, copy
    health       hangs, errors, and the way back
    directory    what all these share: the directory, its lock, its bytes, and whose records it holds
    opening      what goes and what is read when the tier begins
    recovery     what a directory holds, from summaries or by scanning
    inspection   looking into a directory without an engine; `clearing`: deleting there
    cipher       encryption at rest
    room         what the file system has for the tier
    layout       bytes of segments and records; `summary` those of a sealed segment's table
    io, lock     the only calls that reach the disk; who holds the directory

Choices and their price: docs/decisions/0007-disk-tier.md; the format by byte: docs/disk-format.md.
"""

from octavo.door import attach_door

__getattr__, __dir__, __all__ = attach_door(__name__, __file__)
