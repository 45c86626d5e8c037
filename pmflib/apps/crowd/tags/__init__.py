"""Several labels a task: tags, each given or not."""
