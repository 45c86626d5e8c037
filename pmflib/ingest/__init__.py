"""Raw files to sample blocks: read, encode by schema, quarantine what does not fit, partition by sample."""
