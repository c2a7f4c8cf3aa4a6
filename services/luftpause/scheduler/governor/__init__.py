"""Who keeps the rate governor's state, and how do those who call reach it?"""
