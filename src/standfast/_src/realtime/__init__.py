"""Voice calls: the state machine, the session around it, and its transports."""
