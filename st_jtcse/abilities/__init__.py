"""What a stage can do beyond training on its rows: one module each, found by their classes."""
