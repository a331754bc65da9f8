"""The engine process: slots, continuous batching and the runners that compute or sleep the steps.

Nothing here imports aiohttp; only `models`, `slots`, `graphs`, `sampling` and `torch_runner` import
torch, and only a process that runs the torch engine imports those.
"""
