"""HTTP servers: what an engine's server, a router and a picker have in common, and what they tell each other.

Inside, where an arrow leads to what a module calls:

    signalled -> server -> sockets, accepting   a server from its configuration to its socket, and how it ends
    signals                                     Ctrl-C and its like
    gated_app -> gate, refusals                 who may ask for what, and how the others are answered
    tenants                                     API keys with a tenant each
    body_route -> admission, exchange           a request with a body: a place, its bytes within bounds, its answer
    exchange -> whole_events                    streams of events, and what breaks off within one
    connection, body_parts, threads             slow clients, bodies that hold everybody up, work beside the loop
    errors                                      answers that are no success
    metrics -> metric                           what is counted of all this
    page, logs                                  what people see
    load_book, engine_facts                     what engines and routers tell each other
"""

from octavo.door import attach_door

__getattr__, __dir__, __all__ = attach_door(__name__, __file__)
