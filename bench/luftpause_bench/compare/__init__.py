"""How do revisions of this repository differ in a benchmark?"""
