"""Artefacts on disk: arrays, publication, lineage."""
