"""Label logs in a store: the parts used only by the pipeline."""
