"""The score of one query and one key by the formula of each paper, in plain Python: a second
implementation of every attention half."""

import math


def literal_score(name, encoding, q, k, h, i, j):
    """The score of a query q (D,) at position i and a key k (D,) at position j in head h, from 0;
    `name` of the encoding, with the options of `encoding`."""
    q, k = q.tolist(), k.tolist()
    return SCORES[name.split()[0]](encoding, q, k, h, i, j)


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def gelu(x):
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def content(q, k):
    return dot(q, k) / math.sqrt(len(q))


def turned(x, place, base=10000.0):
    out = list(x)
    for m in range(len(x) // 2):
        angle = place / base ** (2 * m / len(x))
        a, b = x[2 * m], x[2 * m + 1]
        out[2 * m] = a * math.cos(angle) - b * math.sin(angle)
        out[2 * m + 1] = a * math.sin(angle) + b * math.cos(angle)
    return out


def rope(encoding, q, k, h, i, j):
    return content(turned(q, i), turned(k, j))


def rope_partial(encoding, q, k, h, i, j):
    half = len(q) // 2
    q, k = (turned(x[:half], place) + x[half:] for x, place in ((q, i), (k, j)))
    return content(q, k)


def rope_long(encoding, q, k, h, i, j):
    """With interpolation=4, ntk_factor=3, base=500."""
    base = 500 * 3 ** (len(q) / (len(q) - 2))
    return content(turned(q, i / 4, base), turned(k, j / 4, base))


def alibi(encoding, q, k, h, i, j):
    return content(q, k) - 2 ** (-8 * (h + 1) / encoding.n_heads) * abs(i - j)


def t5(encoding, q, k, h, i, j):
    return content(q, k) + encoding.by_bucket[literal_bucket(j - i), h].item()


def literal_bucket(offset, n_buckets=32, max_distance=128):
    """Raffel et al.: half the buckets a direction; half of those exact, the rest logarithmic."""
    half, exact = n_buckets // 2, n_buckets // 4
    ahead = half if offset > 0 else 0
    distance = abs(offset)
    if distance < exact:
        return ahead + distance
    far = exact + int(math.log(distance / exact) / math.log(max_distance / exact) * (half - exact))
    return ahead + min(far, half - 1)


def relative(encoding, q, k, h, i, j):
    clipped = min(max(j - i, -encoding.clip), encoding.clip)
    own = encoding.relative_keys[clipped + encoding.clip].tolist()
    return content(q, [a + b for a, b in zip(k, own, strict=True)])


def kerple(encoding, q, k, h, i, j):
    r1, raw_r2 = math.exp(encoding.raw_r1[h].item()), encoding.raw_r2[h].item()
    if encoding.kernel == "power":
        return content(q, k) - r1 * abs(i - j) ** (2 / (1 + math.exp(-raw_r2)))
    return content(q, k) - r1 * math.log(1 + math.exp(raw_r2) * abs(i - j))


def sandwich(encoding, q, k, h, i, j):
    def vector(place):  # sinusoidal, 128 features
        angles = [place / 10000 ** (2 * m / 128) for m in range(64)]
        return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]

    ratio = (h + 1) * 8 / encoding.n_heads
    return content(q, k) + dot(vector(i), vector(j)) / ratio


def fire(encoding, q, k, h, i, j):
    c, threshold = math.exp(encoding.log_c.item()), math.exp(encoding.log_threshold.item())

    def psi(y):
        return math.log(c * y + 1)

    if j <= i:
        x = psi(i - j) / psi(max(i + 1, threshold))
    else:
        x = -psi(j - i) / psi(max(j + 1, threshold))
    hidden = [
        max(0.0, w * x + b)
        for w, b in zip(encoding.weight_in.tolist(), encoding.bias_in.tolist(), strict=True)
    ]
    return content(q, k) + dot(encoding.weight_out[h].tolist(), hidden)


def tupe(encoding, q, k, h, i, j):
    rows = slice(h * len(q), (h + 1) * len(q))  # of the matrices, which have d outputs
    a, b = (
        [dot(encoding.vectors[place].tolist(), row) for row in weight[rows].tolist()]
        for place, weight in ((i, encoding.weight_query), (j, encoding.weight_key))
    )
    return (dot(q, k) + dot(a, b)) / math.sqrt(2 * len(q))


def diet(encoding, q, k, h, i, j):
    a, b = encoding.query_vectors[h, i].tolist(), encoding.key_vectors[h, j].tolist()
    return content(q, k) + dot(a, b)


def pope(encoding, q, k, h, i, j):
    total = 0.0
    for c in range(len(q)):
        delta = 0.0 if encoding.delta is None else encoding.delta[h, 0, c].item()
        delta = min(max(delta, -2 * math.pi), 0.0)
        magnitude = math.log(1 + math.exp(q[c])) * math.log(1 + math.exp(k[c]))
        total += magnitude * math.cos((j - i) * 10000 ** (-c / len(q)) + delta)
    return total / math.sqrt(len(q))


SCORES = {
    function.__name__: function
    for function in (
        rope, rope_partial, rope_long, alibi, t5, relative, kerple, sandwich, fire, tupe, diet, pope
    )
}  # fmt: skip
