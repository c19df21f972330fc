"""How a group with reference sliding-window attention holds its blocks: as its spec says."""

from octavo.blocks import ResumeRuleManager


class ReferenceWindowManager(ResumeRuleManager):
    """Keeps the prompt to the end, and lets go what lies between it and the window.

    Nothing to add, since that is what `needed_blocks` says. A kind that needs more than the rule overrides it here.
    """
