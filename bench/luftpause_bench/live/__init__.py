"""Benchmarks with real processes on loopback: what do they share?"""
