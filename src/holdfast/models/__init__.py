"""Models: the interface a provider implements, its settings, and the decision to send a request again."""
