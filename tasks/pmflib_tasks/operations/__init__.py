"""Work around pipelines that only the command line reaches: doctor, plan, erasure, lineage."""
