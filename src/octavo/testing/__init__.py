"""Conformance suites that every implementation of a contract subclasses, and strategies for their values.

The only part of Octavo that needs Hypothesis and pytest: `pip install octavo[testing]`.

Inside, where an arrow leads to what a module calls:

    spec_suite, policy_suite, worker_suite           contracts, each as a suite
    tier_suite -> tier_machine, tier_driver          the contract of tiers, with a state machine of jobs and restarts
    manager_suite -> block_machine -> naive_blocks   the contract of managers, beside a naive engine
    naive_blocks -> naive_request, naive_index       the parts of the naive engine, over `naive_device`
    strategies, small_models, traffic                specs, models and requests to test with
"""

from octavo.door import attach_door

__getattr__, __dir__, __all__ = attach_door(__name__, __file__, {"OffloadingWorkerSuite": "engine,testing"})
