"""Verification of a live store: the conformance kit in a scratch name space."""
