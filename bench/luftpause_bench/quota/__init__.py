"""Which clients get how much of a shared quota, and who gets it first?"""
