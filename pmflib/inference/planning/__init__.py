"""How many samples a wanted accuracy takes."""
