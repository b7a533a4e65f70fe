"""What the program says about itself, and what time it is."""
