"""How do calls of any tool to a configured API share its quota: the governed reverse proxy `/proxy/{target}/…`?"""
