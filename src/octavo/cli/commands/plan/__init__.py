"""`octavo plan`: what a hybrid model's cache needs, wastes and holds.

Inside:

    command                its flags, and the plan that answers them
    view -> sheet_picture  the plan for people; one sheet, as a bar for each way to cut it
"""

from octavo.cli.commands.plan.command import plan

__all__ = ["plan"]
