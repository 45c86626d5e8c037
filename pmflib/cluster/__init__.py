"""Work on Dask: clients, maps with a fixed merge tree, memory planned before anything runs."""
