"""What all else stands on: errors, arrays, blocks, hashes, methods by name, comparisons on held-out data."""
