"""Octavo in Ray Serve (`octavo[engine,ray]`): `serve run octavo.ray:app model=MODEL replicas=3`.

Inside:

    arguments        what `app` is told
    application      `app`: the two deployments of an application
    replica          an engine, which answers as `octavo serve` does
    ingress          before the replicas: what clients speak to, and where a prompt's tokens are found out
    handed           what goes between the two
    request_router   `OctavoRouter`: which replica gets a request; for deployments of others too
"""

from octavo.door import attach_door

__getattr__, __dir__, __all__ = attach_door(__name__, __file__, {"Ingress": "engine,ray"})
