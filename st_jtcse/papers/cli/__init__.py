"""The commands st-convergence, st-diagnose and st-score."""
