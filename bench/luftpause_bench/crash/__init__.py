"""Do runs survive kill -9 and power cuts at any moment?"""
