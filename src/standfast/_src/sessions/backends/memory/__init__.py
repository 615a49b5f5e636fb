"""Sessions and runs in this process."""
