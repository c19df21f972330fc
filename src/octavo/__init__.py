"""Octavo: the KV-cache system for hybrid language models."""

from importlib.metadata import version

__version__ = version("octavo")
