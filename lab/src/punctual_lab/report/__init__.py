"""Reports: one self-contained HTML file that a person reads from top to bottom."""
