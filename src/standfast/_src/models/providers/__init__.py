"""Edge: models of OpenAI and of servers compatible with its APIs."""
