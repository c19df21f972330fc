"""Octavo in Ray Serve (`octavo[engine,ray]`): `serve run octavo.ray:app model=MODEL replicas=3`.

Inside:

    arguments        what `app` is told
    application      `app`: the two deployments of an application
    replica          an engine, which answers as `octavo serve` does
    ingress          before the replicas: what clients speak to, and where a prompt's tokens are found out
    handed           what goes between the two
    request_router   `OctavoRouter`: which replica gets a request; for deployments of others too
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
