"""The hands of a voice call: one owner for every task, connection, listener and reader, around the pure machine."""
