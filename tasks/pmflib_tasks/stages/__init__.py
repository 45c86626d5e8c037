"""The stages of the pipeline, from raw files to a refined model."""
