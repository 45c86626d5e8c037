"""The embedded Prefect server."""
