"""rounding.py - IEEE 754 numbers as bits and as fractions: exact arithmetic, rounded once. A test's oracle."""
import math
from fractions import Fraction


class Format:
    """Binary numbers of BITS, of which FRACTION are behind the point."""

    def __init__(self, bits, fraction):
        self.bits, self.fraction = bits, fraction
        self.bias = (1 << (bits - fraction - 2)) - 1
        self.least = 1 - self.bias - fraction  # exponent of the last place of subnormal numbers
        self.sign = 1 << (bits - 1)
        self.infinity = self.sign - (1 << fraction)
        self.nan = self.sign - 1 if bits < 64 else self.infinity + (1 << (fraction - 1))

    def is_nan(self, x):
        return x & ~self.sign > self.infinity

    def is_infinite(self, x):
        return x & ~self.sign == self.infinity

    def value(self, x):
        """Of a finite number."""
        exponent, fraction = (x & ~self.sign) >> self.fraction, x & ((1 << self.fraction) - 1)
        whole = fraction + (1 << self.fraction) if exponent else fraction
        value = whole * Fraction(2) ** (max(exponent, 1) - 1 + self.least)
        return -value if x & self.sign else value

    def round(self, value, negative=None):
        """The nearest number, of two the even one. NEGATIVE: sign of a zero."""
        sign = self.sign if (value < 0 or (not value and negative)) else 0
        value = abs(value)
        if not value:
            return sign
        exponent = value.numerator.bit_length() - value.denominator.bit_length()
        if value < Fraction(2) ** exponent:
            exponent -= 1
        place = max(exponent - self.fraction, self.least)
        whole = round(value / Fraction(2) ** place)  # of Fraction: ties to even
        if whole >> self.fraction:
            exponent = place - self.least + 1
            bits = (exponent << self.fraction) + whole - (1 << self.fraction)
        else:
            bits = whole
        return sign | min(bits, self.infinity)

    def flush(self, x):
        return x & self.sign if x & ~self.sign < 1 << self.fraction else x


F16, BF16, F32, F64 = Format(16, 10), Format(16, 7), Format(32, 23), Format(64, 52)


def add(f, a, b):
    if f.is_nan(a) or f.is_nan(b) or (f.is_infinite(a) and f.is_infinite(b) and a != b):
        return f.nan
    if f.is_infinite(a) or f.is_infinite(b):
        return a if f.is_infinite(a) else b
    return f.round(f.value(a) + f.value(b), a & b & f.sign)


def fma(f, a, b, c):
    sign = (a ^ b) & f.sign
    if any(f.is_nan(x) for x in (a, b, c)):
        return f.nan
    if f.is_infinite(a) or f.is_infinite(b):
        if not a & ~f.sign or not b & ~f.sign or (f.is_infinite(c) and c & f.sign != sign):
            return f.nan
        return sign | f.infinity
    if f.is_infinite(c):
        return c
    product = f.value(a) * f.value(b)
    if not product and not c & ~f.sign:
        return sign & c
    return f.round(product + f.value(c), False)


def mul(f, a, b):
    sign = (a ^ b) & f.sign
    if f.is_nan(a) or f.is_nan(b):
        return f.nan
    if f.is_infinite(a) or f.is_infinite(b):
        return f.nan if not a & ~f.sign or not b & ~f.sign else sign | f.infinity
    return f.round(f.value(a) * f.value(b), sign)


def div(f, a, b):
    sign = (a ^ b) & f.sign
    if f.is_nan(a) or f.is_nan(b) or (f.is_infinite(a) and f.is_infinite(b)):
        return f.nan
    if f.is_infinite(a):
        return sign | f.infinity
    if f.is_infinite(b):
        return sign
    if not b & ~f.sign:
        return sign | f.infinity if a & ~f.sign else f.nan
    return f.round(f.value(a) / f.value(b), sign)


def sqrt(f, a):
    if f.is_nan(a) or (a & f.sign and a != f.sign):
        return f.nan
    if not a & ~f.sign or f.is_infinite(a):
        return a
    value = f.value(a)
    shift = 2 * f.fraction + 140 + (1 << 11)  # far more places than a result has
    scaled = value.numerator * (1 << 2 * shift) // value.denominator
    root = math.isqrt(scaled)
    return f.round(Fraction(2 * root + (root * root != scaled), 2 << shift))  # an odd last bit: there is more


def compare(f, a, b):
    """-1, 0, 1; None: one is not a number."""
    if f.is_nan(a) or f.is_nan(b):
        return None
    x, y = ((-(i & ~f.sign) if i & f.sign else i) for i in (a, b))
    return (x > y) - (x < y)
