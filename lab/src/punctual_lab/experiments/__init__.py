"""Experiments on virtual time: each answers one question from a seed, with the product's code."""
