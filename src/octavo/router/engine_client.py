"""`open_engine_client`: the HTTP client that asks a fleet's engines.

It asks for all clients of a router, so it keeps no cookies: one client's would go to the engine with the next one's
request. Answers are handed on as they come, so it asks for none that is compressed.
"""

from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from octavo.router.engine_connections import EngineConnections

_CONNECT_TIMEOUT_S = 5.0


def open_engine_client() -> httpx.AsyncClient:
    """Opens no connection."""
    return httpx.AsyncClient(
        timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S),
        transport=EngineConnections(),
        headers={"accept-encoding": "identity"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        trust_env=False,
    )
