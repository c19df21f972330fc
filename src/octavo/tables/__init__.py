"""Containers of millions of keys that never stop their caller for long."""
