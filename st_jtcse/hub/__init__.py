"""Models on their way to the Hub: cards and pushes."""
