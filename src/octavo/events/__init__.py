"""KV events: what changed in a cache, on which medium and for which group, from publishers to those who route.

Inside, where an arrow leads to what a module calls:

    messages, wire, skim                       what is told, and its bytes
    sources                                    from the changes of a cache to messages
    publisher -> sender -> replay              an engine's side
    subscriber -> endpoint_reader -> session   a reader's side: in order, or it says what is missing
    group_view, held_blocks -> group_blocks    what publishers hold, kept from their events
    published_plan, reach                      what a reader must know of the engine's plan, and of its media
    endpoints, keys, sockets, shared_context   addresses, encryption, ZMQ
"""

from octavo.door import attach_door

__getattr__, __dir__, __all__ = attach_door(__name__, __file__)
