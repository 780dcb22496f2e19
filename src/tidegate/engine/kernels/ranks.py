"""Floats as ints in the same order, so that code for ints compares and counts them.

float      -inf ...  -1.0 ...  -0.0   0.0   5e-324 ...  inf
rank       the smaller the float, the smaller; 0 for both zeros
"""

from __future__ import annotations

from tidegate.foundation.jit import inline

_NO_SIGN = (1 << 63) - 1
_INFINITY = 0x7FF << 52


@inline
def is_nan(word):  # type: ignore[no-untyped-def]
    """Whether these are the bits of a NaN, which has no rank."""
    return (word & _NO_SIGN) > _INFINITY


@inline
def rank_of(word):  # type: ignore[no-untyped-def]
    """The rank of the float with these bits; the rank of a rank is the float's bits again."""
    if word & _NO_SIGN == 0:  # both zeros
        return 0
    return word if word >= 0 else word ^ _NO_SIGN
