"""RSA-2048 primes that nobody must trust.

small_factor: the modulus is 751 times a prime.
roca: both primes have the form k * M + 65537**a mod M, M a product of small primes, as Infineon's faulty library
made them (CVE-2017-15361; Nemec et al., "The Return of Coppersmith's Attack", 2017).
"""

import secrets

EXPONENT = 65537


def is_prime(n):
    """Miller-Rabin, 40 rounds."""
    if any(n % p == 0 for p in range(2, 1000) if p < n):
        return False
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for _ in range(40):
        x = pow(secrets.randbelow(n - 3) + 2, odd, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def search(candidate, low, high):
    while True:
        n = candidate()
        if low <= n < high and n % EXPONENT != 1 and is_prime(n):
            return n


def small_factor():
    low, high = (1 << 2047) // 751 + 1, (1 << 2048) // 751
    return 751, search(lambda: low + secrets.randbelow(high - low) | 1, low, high)


def roca():
    primorial = 1
    for p in [n for n in range(2, 702) if all(n % d for d in range(2, n))]:
        primorial *= p
    low, high = 3 << 1022, 1 << 1024

    def candidate():
        k = low // primorial + secrets.randbelow((high - low) // primorial)
        return k * primorial + pow(EXPONENT, secrets.randbelow(primorial), primorial)

    return search(candidate, low, high), search(candidate, low, high)
