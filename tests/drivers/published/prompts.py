"""prompts.py - holds prompts for a real model."""

PROMPTS = """The capital of France is
It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a
Once upon a time there was a
def fibonacci(n):
The quick brown fox jumps over
2 + 2 =
In the beginning God created
To be, or not to be, that is
Water boils at a temperature of
The mitochondria is the powerhouse of
Der schnelle braune Fuchs
Il était une fois
SELECT name FROM users WHERE
<html><head><title>
Roses are red, violets are
The president of the United States lives in
My favourite food is pizza because
1, 1, 2, 3, 5, 8,
Albert Einstein was born in
E = mc"""
