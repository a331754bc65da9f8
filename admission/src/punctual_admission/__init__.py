"""The admission decision: pure Python, no I/O, injected clock."""
