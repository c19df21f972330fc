"""The engine's server: OpenAI's API over HTTP, metrics, and a page to look at.

Inside, where an arrow leads to what a module calls:

    serving -> app -> service                   the socket, the routes, and what they share
    requests, responses_request, answer_bodies  the bodies that come in and go out
    prompts, sampling, structure, tools         from a body to what the engine is asked; calls of functions
    generation, completions, chat, responses    from what the engine computes to an answer
    hints                                       how long a prompt will be wanted
    metrics, page_state, work_log               what is told of all this
"""

from octavo.door import attach_door

_OF_THE_ENGINE = dict.fromkeys(("Server", "Service", "make_app"), "engine")
__getattr__, __dir__, __all__ = attach_door(__name__, __file__, _OF_THE_ENGINE)
