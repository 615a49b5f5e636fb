"""The command `standfast`: a store from the shell. The table of its commands is in `entry`."""
