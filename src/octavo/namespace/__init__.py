"""The identity under which bytes may be reused: a digest of all that decides what they mean."""
