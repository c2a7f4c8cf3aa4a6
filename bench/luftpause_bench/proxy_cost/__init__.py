"""What does a proxy cost per turn and per chunk, and what does it add to the first token?"""
