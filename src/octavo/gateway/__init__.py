"""The endpoint picker: a Gateway asks it where to send each request (Envoy's ext_proc; `octavo epp`).

Inside:

    config           how it is reached, and its bounds
    picker           which engine, over the router's fleet and placement
    messages         the protocol's messages that it makes and reads
    processor        one HTTP request of the Gateway, from its head to the end of its answer
    server, health   on a socket
    status           the page and the metrics over HTTP
"""

from octavo.door import attach_door

__getattr__, __dir__, __all__ = attach_door(__name__, __file__)
