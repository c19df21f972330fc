"""The engine's server: OpenAI's API over HTTP, metrics, and a page to look at.

exchange, admission, gate     bytes in and out, within bounds
requests -> prompts, sampling -> generation -> completions, chat     from a body to its answer
service, app, serving     what the routes share, the routes, and the socket they are behind
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
