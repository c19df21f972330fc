"""What lies in host memory: the arena, its slots, the chunks in them, and a segment that outlives a process."""
