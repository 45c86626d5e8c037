"""What a run will take: tasks, bytes, seconds and memory by stage, from sizes alone."""
