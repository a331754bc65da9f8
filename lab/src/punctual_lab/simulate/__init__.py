"""The simulator: the product's own admission code on virtual time."""
