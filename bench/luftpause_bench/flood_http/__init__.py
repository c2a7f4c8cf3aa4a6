"""How do luftpause and routers of others fare on saturated fake engines, as real processes over HTTP?"""
