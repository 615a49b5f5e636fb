"""The hands: performs what the engine says is due. Knows no provider and no database."""
