"""The router: which engine of a fleet can really resume a prompt, and which one answers it first.

Inside:

    index                                   the blocks of all engines, and the resume rule over them
    engine_load, load_of_others             what waits at an engine, whoever sent it; how soon it would answer
    placement                               the choice of an engine
    address, names, facts, member, fleet    the engines, what they say of themselves, and their health
    plan_learner, feed, indexes, listener   from their events to the index
    engine_client, engine_connections       the HTTP client that asks engines
    prompt_reader, token_telling            a request's prompt, and how much of it each engine could resume
    proxy, app, config                      requests in, answers out
    selection                               the same for those who send requests themselves
    state, metrics                          what can be seen of all this
"""

from octavo.door import attach_door

__getattr__, __dir__, __all__ = attach_door(__name__, __file__)
