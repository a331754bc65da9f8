"""Load generator, simulator and experiments that check every claim of Punctual."""
