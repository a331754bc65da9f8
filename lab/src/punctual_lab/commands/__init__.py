"""The sub-commands of `punctual-lab`, one module each."""
