"""Descriptions of the library's own stores for the kit, for an empty store and for a scratch name space in a store."""
