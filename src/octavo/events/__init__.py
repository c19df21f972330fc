"""KV events: what changed in a cache, on which medium and for which group, from publishers to those who route."""
