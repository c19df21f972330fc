"""A server's page: one file, with what all pages share written into it, and nothing from elsewhere."""

from importlib.resources import files

from starlette.responses import Response

_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-cache",
    "referrer-policy": "no-referrer",
}
_SHARED = {
    "page_head.html": "<!-- page_head.html -->\n",
    "page_top.html": "<!-- page_top.html -->\n",
    "page.css": "/* page.css */\n",
    "page.js": "/* page.js */\n",
}
"""Files, and the lines of a page that they replace. The head has such a line too."""


def read_page(package: str) -> Response:
    """The `page.html` of a package, as it is answered."""
    page = files(package).joinpath("page.html").read_text(encoding="utf-8")
    for name, line in _SHARED.items():
        page = page.replace(line, files(__package__).joinpath(name).read_text(encoding="utf-8"))
    return Response(page, media_type="text/html", headers=_HEADERS)
