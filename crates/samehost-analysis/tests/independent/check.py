"""The rule for a fixed number of blocks and the one for any, from docs/method.md and textbooks, with nothing of the tool's:
prints for each case of samples.csv the ratio, its interval, p of "no difference" and p of "inside 2 %"."""
import csv, math, statistics as st, sys
from itertools import groupby

def t_two_sided(t, df):                      # Simpson over x = sqrt(df) tan(a): the integrand is cos(a)^(df-1)
    a, n, f = math.atan(abs(t)/math.sqrt(df)), 4000, lambda x: math.cos(x)**(df-1)
    def area(lo, hi):
        h = (hi-lo)/n
        return h/3*sum((1 if i in (0, n) else 4 if i % 2 else 2)*f(lo+i*h) for i in range(n+1))
    return area(a, math.pi/2)/area(0, math.pi/2)

def t_critical(df):
    lo, hi = 0.0, 1e4
    for _ in range(80):
        mid = (lo+hi)/2
        lo, hi = (mid, hi) if t_two_sided(mid, df) > .05 else (lo, mid)
    return lo

def tails(n):                                # number of sign patterns with rank sum <= s
    ways = [1]+[0]*(n*(n+1)//2)
    for r in range(1, n+1):
        ways = [w+(ways[s-r] if s >= r else 0) for s, w in enumerate(ways)]
    return [sum(ways[:s+1])/2**n for s in range(len(ways))]

def signed_rank(x):
    n, walsh = len(x), sorted((a+b)/2 for i, a in enumerate(x) for b in x[i:])
    k = sum(p <= .025 for p in tails(n))
    order = sorted(range(n), key=lambda i: abs(x[i]))
    plus = sum(rank+1 for rank, i in enumerate(order) if x[i] > 0)
    p = min(1, 2*tails(n)[min(plus, n*(n+1)//2-plus)])
    return st.median(walsh), walsh[k-1], walsh[-k], p

def by_starts(x, starts):
    n, m, groups = len(x), st.mean(x), {}
    for v, g in zip(x, starts): groups.setdefault(g, []).append(v)
    g = len(groups)
    if g in (1, n): return m, st.variance(x)/n, n-1
    between = sum(len(v)*(st.mean(v)-m)**2 for v in groups.values())/(g-1)
    within = sum((v-st.mean(w))**2 for w in groups.values() for v in w)/(n-g)
    return m, max(between, st.variance(x))/n, (g-1)+(n-g)*min(1, within/between)**4

def fixed(x, starts):
    if len(x) >= 10 and len(set(starts)) in (1, len(x)): return signed_rank(x)
    m, v, df = by_starts(x, starts)
    return m, m-t_critical(df)*v**.5, m+t_critical(df)*v**.5, t_two_sided(m/v**.5, df)

def looks(x, starts, limit):
    best, part = 1.0, .12
    for look in range(20):
        n = round(7*2**(look/2))
        if n > len(x): break
        m, v, df = by_starts(x[:n], starts[:n])
        one_side = lambda distance: t_two_sided(distance/v**.5, df)/2
        if abs(m) > limit:
            p = one_side(abs(m)-limit)+one_side(abs(m)+limit)
            best = min(best, max(p/part, 2.0**(1-n)))
        part = .26 if look == 0 else .7*part
    return best

rows = list(csv.DictReader(open(sys.argv[1])))
for case, blocks in groupby(rows, key=lambda row: row["case"]):
    blocks = list(blocks)
    x = [math.log(float(b["b"]))-(math.log(float(b["a"]))+math.log(float(b["a2"])))/2 for b in blocks]
    starts = [b["start"] for b in blocks]
    m, low, high, p = fixed(x, starts)
    side, limit = (-1 if m < 0 else 1), math.log(1.02)
    moved = fixed([v-side*limit for v in x], starts)
    inside = moved[3] if side*moved[0] > 0 else 1.0
    print(case, *map(math.exp, (m, low, high)), p, inside, looks(x, starts, 0), looks(x, starts, limit))
