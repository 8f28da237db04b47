"""How fast it is: steps, fleets, the service, calls on the short path."""
