"""Sample blocks from raw rows: encoded, assigned to partitions, assembled; the rest goes to quarantine."""
