"""Pages and pictures of diagnoses."""
