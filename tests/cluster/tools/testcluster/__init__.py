"""A real Kubernetes for tests: its programs as plain processes, and what tests need to use it."""
