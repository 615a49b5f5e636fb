"""Whether a live store keeps the contract: the conformance kit in a scratch name space of it."""
