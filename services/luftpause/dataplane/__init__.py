"""The dataplane: an OpenAI-compatible streaming proxy that asks the scheduler where each turn goes."""
