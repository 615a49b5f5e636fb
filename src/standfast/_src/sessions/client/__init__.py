"""Edge ground: what all backends share between a caller and a store."""
