"""The embedded engine: it computes Hugging Face models over Octavo's pool of pages. Its server is `octavo.server`.

Inside, where an arrow leads to what a module calls:

    async_engine -> engine                  requests in, tokens out; the loop on a thread of its own
    scheduler -> turns, prefix_leaders      which choices compute which tokens in the next step
    forward, runner -> cache, models        the model's part of a step, over the pages of the plan
    models -> attention                     Hugging Face's models, which attend to pages
    settling -> sampler -> drawing          what the model computed becomes tokens; `grammars` limits them
    request, outputs, detokenizer, stream   what a client asked for, and what it gets
    offload_hooks, event_feed, why_hooks    what a step tells offloading, subscribers and `why`
    config, checks, building, offloading    settings, and the parts made of them
    admitted, tiny_families, tiny_models    the families that are served, and tiny models of them
"""

from octavo.door import attach_door

__getattr__, __dir__, __all__ = attach_door(__name__, __file__)
