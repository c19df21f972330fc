"""Media below host memory, each a `Tier`."""
