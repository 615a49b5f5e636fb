"""A voice call as data: what outlives connections (`Talk`), what one connection knows (`Link`), the wire's words."""
