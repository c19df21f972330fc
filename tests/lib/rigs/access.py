"""Which of an app's routes which key opens, asked over its socket."""

from octavo.http import Access

_REFUSED = {401, 403}


def check_access(routes, server, expected, *, tenant, operator):
    """Of every route of an app, by path. A route that is not expected fails: say whose it is."""
    assert {route.path for route in routes} == set(expected)
    keys = {None: Access.OPEN, tenant: Access.OWN, operator: Access.CHANGES_ALL}
    for route in routes:
        path = route.path.replace("{name:path}", "a").replace("{request_id}", "a")
        for method in route.methods:
            for key, most in keys.items():
                shown = {} if key is None else {"authorization": f"Bearer {key}"}
                with server.client(headers=shown) as client, client.stream(method, path) as answer:
                    is_open = answer.status_code not in _REFUSED
                assert is_open == (expected[route.path] <= most), (method, path, key)
