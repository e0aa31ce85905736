"""Tables and figures of the papers: what they show, what makes them here, and what came of it."""
