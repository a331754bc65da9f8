"""The admission gateway in front of OpenAI-compatible model pods."""
