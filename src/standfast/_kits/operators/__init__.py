"""For people who run standfast: a whole store by its URL, saved runs as data, and decisions without the agents."""
