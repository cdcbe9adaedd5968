"""Random tokens in a file as nanoGPT writes them: 16 bits each, no header. For benchmarks that must not wait for data."""
import array, random, sys


def write_tokens(path, count, vocab=50000, seed=1):
    source = random.Random(seed)
    tokens = array.array("H", (word % vocab for word in array.array("I", source.randbytes(4 * count))))
    if sys.byteorder == "big":
        tokens.byteswap()
    with open(path, "wb") as file:
        tokens.tofile(file)
    return path
