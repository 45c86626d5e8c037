"""Named objects with versions: a folder of this machine, or a bucket; what a store keeps besides artefacts."""
