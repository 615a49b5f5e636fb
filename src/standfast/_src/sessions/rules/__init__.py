"""Every rule of part B of the contract and of saved runs, as programs without I/O."""
