"""The operator as a process on a test cluster, and gateways for it to ask."""
