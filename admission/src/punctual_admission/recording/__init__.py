"""The decision log: a ledger that writes down what it is told, and one that lives it again.

`recorder` turns a ledger into one that notes every call together with what came of it; `player`
makes the same calls on a ledger of its own and compares. Nothing else flows into a decision: the
ledger has no clock, and its random numbers come from a seed that is in the log.
"""
