"""How do policies fare on saturated engines? In virtual time, with the real core."""
