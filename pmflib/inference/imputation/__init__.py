"""Missing answers drawn several times, and estimates pooled over the draws."""
