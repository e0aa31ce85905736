"""What several runs say together, as numbers and pictures."""
