"""Foundations of all packages: errors, arrays, blocks, hashes, tables of methods, held-out comparisons."""
