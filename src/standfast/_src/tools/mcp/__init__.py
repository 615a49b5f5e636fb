"""Servers of the Model Context Protocol that standfast connects to itself, on the official `mcp` package."""
