"""The admission decision: pure Python, no I/O, injected clock.

Start with `decision` (may this request join?), then `forecast` (when would it end?), then
`ledger` (who waits and who runs).
"""
