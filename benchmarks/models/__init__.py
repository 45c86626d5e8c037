"""What a fitted model is good for: density, classes, ratings."""
