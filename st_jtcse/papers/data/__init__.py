"""What frozen language models write: translations and judgements."""
