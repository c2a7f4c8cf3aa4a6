"""The tools that the runtime offers over MCP."""
