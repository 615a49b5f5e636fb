"""What is installed with the library and used by no part of it: tests, operators, the command line."""
