"""The pipeline: throughput, memory, and what orchestration costs."""
