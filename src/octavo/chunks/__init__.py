"""Every word for a chunk: its key, its size, what requests ask for, what moves, and what changed."""
