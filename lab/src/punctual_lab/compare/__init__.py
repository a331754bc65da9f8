"""The modes side by side: the same seeded trace, live servers, one gateway a mode."""
