"""The slower side: where offloaded chunks are, what is loaded and stored, and the tiers below host memory."""
