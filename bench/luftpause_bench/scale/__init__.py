"""How much can one machine hold, and what does it take?"""
