"""Work around pipelines that only the command line reaches: plan, erasure, lineage."""
