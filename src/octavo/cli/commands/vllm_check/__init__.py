"""`octavo vllm-check`: a user's model in a user's vLLM, without and with the plug-in, compared token by token.

Inside:

    command        its flags, and the calls that answer them
    view -> run    the table and the verdict; the passes, each engine in a process of its own
    run -> causes  why vLLM did not serve the model, by what it said
"""

from octavo.cli.commands.vllm_check.command import vllm_check

__all__ = ["vllm_check"]
