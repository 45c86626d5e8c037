"""What counts can carry, and how sure an estimate is."""
