"""Learn the joint distribution of many categorical variables from co-occurrence counts."""
