"""Known margins: samples, counts and models raked to them."""
