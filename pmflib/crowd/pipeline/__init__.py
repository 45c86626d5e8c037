"""Label logs in a store: what exists for the pipeline alone."""
