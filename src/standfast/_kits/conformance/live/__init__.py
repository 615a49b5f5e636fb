"""Verification of a store in use: scratch name spaces, and the checks of the kit made in them."""
