#!/usr/bin/env python3
"""Writes scipy_stats.h: what SciPy and definitions taken literally say of small sets of samples and of series of nights.

    python3 tests/golden/scipy_stats.py > tests/golden/scipy_stats.h      (SciPy 1.17.1, numpy)

The tests need the header alone."""
import itertools
import math
from fractions import Fraction

import numpy as np
import scipy
from scipy import stats

random = np.random.default_rng(20250801)
LEVEL = 0.05


def literals(values):
    return "(const double[]){" + ", ".join(number(v) for v in values) + "}"


def number(v):
    return "NAN" if math.isnan(v) else repr(float(v))


def rounded(values, digits=6):
    return [float(f"{v:.{digits}g}") for v in values]


def tied_p(a, b):
    """Twice the smaller tail of the rank sum over all choices, by Fractions over the mid-ranks."""
    ranks = [Fraction(float(r)) for r in stats.rankdata(np.concatenate([a, b]))]
    ways = [{Fraction(0): 1}] + [{} for _ in a]
    for r in ranks:
        for k in range(len(a), 0, -1):
            for s, w in ways[k - 1].items():
                ways[k][s + r] = ways[k].get(s + r, 0) + w
    at = sum(ranks[: len(a)])
    total = sum(ways[-1].values())
    low = sum(w for s, w in ways[-1].items() if s <= at)
    high = sum(w for s, w in ways[-1].items() if s >= at)
    p = float(min(1, Fraction(2 * min(low, high), total)))
    if math.comb(len(ranks), len(a)) < 20000:  # SciPy's own count of all choices
        again = stats.permutation_test(
            (a, b), lambda x, y, axis: stats.rankdata(np.concatenate([x, y], axis), axis=axis)[..., : len(a)].sum(axis),
            vectorized=True, n_resamples=10**6)
        assert abs(again.pvalue - p) < 1e-12, (again.pvalue, p)
    return p


def mann_whitney(a, b):
    exact = len(a) <= 20 and len(b) <= 20
    if not exact:
        return stats.mannwhitneyu(a, b, method="asymptotic").pvalue
    if len(set(a) | set(b)) < len(a) + len(b):
        return tied_p(a, b)
    return stats.mannwhitneyu(a, b, method="exact").pvalue


def shift(a, b):
    """Median of all differences, and all shifts of b that the test at 5 % does not reject: between two neighbouring
    differences nothing changes, so one shift within each gap is tried."""
    d = np.sort(np.subtract.outer(np.array(b), np.array(a)).ravel())
    method = "exact" if len(a) <= 20 and len(b) <= 20 else "asymptotic"
    at = np.concatenate([[d[0] - 1], (d[1:] + d[:-1]) / 2, [d[-1] + 1]])
    kept = [i for i, x in enumerate(at) if stats.mannwhitneyu(np.array(a), np.array(b) - x, method=method).pvalue > LEVEL]
    inside = kept[0] > 0
    return np.median(d), d[kept[0] - 1] if inside else math.nan, d[kept[-1]] if inside else math.nan


def two_samples():
    yield "four a side, apart", [1, 2, 3, 4], [5, 6, 7, 8]
    yield "five", [1, 2, 3, 4, 5], [6, 7, 8, 9, 10]
    yield "six", [1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16.5]
    yield "eight", [1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15, 16.25]
    yield "three", [1, 2, 4], [8, 16, 32]
    yield "one and one", [1], [2]
    yield "one and twenty", [3.5], [float(i) for i in range(20)]
    for n, m, by in ((7, 9, 0.4), (10, 10, 0.0), (12, 5, -1.0), (20, 20, 0.6), (13, 20, 0.1), (2, 15, 2.0)):
        yield f"normal {n} and {m}", rounded(random.normal(0, 1, n)), rounded(random.normal(by, 1, m))
    yield "100 +- 0.3 and 110 +- 0.3", rounded(random.normal(100, 0.3, 10)), rounded(random.normal(110, 0.3, 10))
    for n, m, step in ((6, 7, 0.5), (8, 8, 1.0), (5, 9, 2.0), (20, 20, 0.5), (20, 11, 1.0), (3, 20, 1.0)):
        yield (f"tied {n} and {m}", [float(x) for x in np.round(random.normal(0, 1, n) / step) * step],
               [float(x) for x in np.round(random.normal(0.7, 1, m) / step) * step])
    yield "all alike", [2, 2, 2, 2, 2, 2], [2, 2, 2, 2, 2, 2, 2]
    for n, m, by in ((21, 21, 0.5), (30, 8, 0.9), (60, 45, 0.1), (5, 40, 0.3)):
        yield f"many {n} and {m}", rounded(random.normal(0, 1, n)), rounded(random.normal(by, 1, m))
    yield ("many, tied", [float(x) for x in random.integers(0, 5, 40)], [float(x) for x in random.integers(1, 6, 33)])
    yield "heavy tails", rounded(random.standard_t(1, 25)), rounded(1 + random.standard_t(1, 35))


def holm(p):
    known = sorted((x, i) for i, x in enumerate(p) if not math.isnan(x))
    out = list(p)
    for at, (_, i) in enumerate(known):
        out[i] = min(1, max((len(known) - j) * known[j][0] for j in range(at + 1)))
    return out


def benjamini_hochberg(p):
    known = [i for i, x in enumerate(p) if not math.isnan(x)]
    out = list(p)
    for i, x in zip(known, stats.false_discovery_control([p[i] for i in known], method="bh")):
        out[i] = x
    return out


def energy(x, y):
    """Matteson and James 2014, eq. 5 to 7 at alpha 1: by all pairs."""
    n, m = len(x), len(y)
    between = 2 / (n * m) * sum(abs(u - v) for u in x for v in y)
    within = sum(abs(u - v) for u, v in itertools.combinations(x, 2)) / math.comb(n, 2)
    within += sum(abs(u - v) for u, v in itertools.combinations(y, 2)) / math.comb(m, 2)
    return n * m / (n + m) * (between - within)


def series():
    """name, values, where levels begin that must be found, whether the last one has settled."""
    def nights(n, noise, levels):
        x = 100 * (1 + noise * random.normal(0, 1, n))
        for at, level in levels:
            x[at:] *= level
        return x

    yield "constant", [100.0] * 120, [], True
    yield "noise", rounded(nights(200, 0.005, [])), [], True
    yield "step", rounded(nights(50, 0.005, [(22, 1.03)])), [22], True
    yield "step in a long series", rounded(nights(200, 0.004, [(131, 1.03)])), [131], True
    yield "step without noise", [80.0] * 40 + [82.0] * 40, [40], True
    yield "faster", rounded(nights(90, 0.006, [(45, 0.94)])), [45], True
    yield "step too small to matter", rounded(nights(120, 0.001, [(60, 1.015)])), [], True
    yield "two steps", rounded(nights(120, 0.004, [(37, 1.04), (75, 0.93)])), [37, 75], True
    yield "two steps within a window", rounded(nights(90, 0.003, [(30, 1.05), (45, 1.04)])), [30, 45], True
    x = nights(150, 0.005, [])
    x[[20, 47, 48, 90, 131]] *= 1.25
    yield "spikes", rounded(x), [], True
    x = nights(150, 0.004, [(71, 1.04)])
    x[[20, 47, 100, 131]] *= 1.08
    yield "spikes and a step", rounded(x), [71], True
    yield "six nights up", rounded(nights(120, 0.004, [(60, 1.1), (66, 1 / 1.1)])), [], True
    yield "slow drift", rounded(nights(300, 0.003, []) * (1 + 0.0003 * np.arange(300))), [], True
    yield "step at the newest edge", rounded(nights(100, 0.004, [(95, 1.05)])), [95], False
    yield "four newest nights", rounded(nights(100, 0.004, [(96, 1.05)])), [], True
    yield "step at the oldest edge", rounded(nights(100, 0.004, [(6, 1.05)])), [], True
    yield "ten newest nights", rounded(nights(100, 0.002, [(90, 1.05)])), [90], True
    for i in range(6):  # its place is no longer clear: that of the largest energy distance is what must be found
        yield f"noisy step {i}", rounded(nights(110, 0.014, [(55 + i, 1.03)])), [55 + i], True
    x = nights(100, 0.004, [(80, 1.04)])
    x[98:] *= 1.28
    yield "a step, and two spikes at the newest edge", rounded(x), [80], True
    yield "step, then the newest nights", rounded(nights(110, 0.004, [(50, 1.05), (103, 0.95)])), [50, 103], False


print("/* Written by scipy_stats.py (SciPy " + scipy.__version__ + "); see there. */")
print("/* clang-format off */\n#ifndef HR_SCIPY_STATS_H\n#define HR_SCIPY_STATS_H\n#include <math.h>\n#include <stdbool.h>\n#include <stddef.h>\n")
print("static const struct scipy_two {\n    const char *name;\n    size_t n_a, n_b;\n    const double *a, *b;\n    double p, shift, lo, hi;\n} scipy_two[] = {")
for name, a, b in two_samples():
    print(f'    {{"{name}", {len(a)}, {len(b)}, {literals(a)},\n     {literals(b)},\n     ' +
          ", ".join(number(v) for v in (mann_whitney(a, b), *shift(a, b))) + "},")
print("};\n")
print("static const struct scipy_adjust {\n    size_t n;\n    const double *p, *holm, *bh;\n} scipy_adjust[] = {")
nan = math.nan
for p in ([0.01, 0.04, 0.03, 0.005], [0.2, nan, 0.2, 0.001, 1.0, nan, 0.02], [nan], [0.5],
          rounded(random.beta(0.3, 2, 40), 4), [0.01] * 6, [nan, 0.9, 0.8, 0.049]):
    print(f"    {{{len(p)}, {literals(p)},\n     {literals(holm(p))},\n     {literals(benjamini_hochberg(p))}}},")
print("};\n")
print("/* p and shift: Student's t and the medians of half a window a side, or up to the next change. */")
print("static const struct scipy_series {\n    const char *name;\n    size_t n;\n    const double *values;\n    size_t n_changes;\n"
      "    struct {\n        size_t at;\n        double shift, p;\n        bool settled;\n    } changes[2];\n} scipy_series[] = {")
for name, x, begins, settled in series():
    rows = []
    if name.startswith("noisy"):
        for _ in range(3):
            low, high = max(0, begins[0] - 25), min(len(x), begins[0] + 25)
            begins = [max(range(low + 10, high - 9), key=lambda t: energy(x[low:t], x[t:high]))]
    for i, at in enumerate(begins):
        done = settled or i + 1 < len(begins)
        last = begins[i - 1] if i else 0
        end = begins[i + 1] if i + 1 < len(begins) and (settled or i + 2 < len(begins)) else len(x)
        low, high = (max(last, at - 25), min(end, at + 25)) if done else (max(last, at - (50 - (len(x) - at))), len(x))
        if done:  # the place is that of the largest energy distance, not only where the step was put
            best = max(range(low + 10, high - 9), key=lambda t: energy(x[low:t], x[t:high]))
            assert best == at, (name, at, best)
        before, after = x[low:at], x[at:high]
        with np.errstate(divide="ignore", invalid="ignore"):
            p = 0.0 if np.std(before) == np.std(after) == 0 else stats.ttest_ind(before, after).pvalue
        rows.append(f"{{{at}, {number(np.median(after) / np.median(before) - 1)}, {number(p)}, {str(done).lower()}}}")
    print(f'    {{"{name}", {len(x)}, {literals(x)},\n     {len(rows)}, {{{", ".join(rows) or "{0, 0, 0, false}"}}}}},')
print("};\n\n#endif")
