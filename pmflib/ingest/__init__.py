"""From raw files to sample blocks: readers, encoding, quarantine, partitions."""
