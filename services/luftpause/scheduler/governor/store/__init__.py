"""How do several nodes share one ledger of quotas, and what does a node do while it can't reach it?"""
