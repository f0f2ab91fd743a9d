"""Events: what can happen, the bus that delivers it to subscribers, and the narrator that logs it."""
