"""How names are found: the table of public names, and modules that load them when they are used."""
