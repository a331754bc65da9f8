"""One diagnosis for each condition: what is the matter, and what to do about it."""
