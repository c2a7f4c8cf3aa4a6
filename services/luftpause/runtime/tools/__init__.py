"""The MCP servers whose tools sub-agents use."""
