"""A gateway on a free port in front of pods that do what a test wants."""
