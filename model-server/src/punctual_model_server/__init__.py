"""A GPT-2 model server with continuous batching that publishes its service model."""
