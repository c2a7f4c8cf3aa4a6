"""The runtime: an MCP server whose sub-agents survive restarts."""
