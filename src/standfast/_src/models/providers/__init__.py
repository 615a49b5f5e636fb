"""The edge: models of OpenAI and of servers that speak as it does."""
