"""Computes values from a name and an index, bit for bit the same in Python and in Rust (`formula.rs`).

Two implementations of a network can therefore be compared without storing 100 MB of weights.
"""

import numpy

MASK = (1 << 64) - 1


def seed(name: str) -> int:
    """Returns the 64-bit FNV-1a hash of the name's bytes."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def uniform(name: str, count: int) -> numpy.ndarray:
    """Returns `count` fp32 values in [-1, 1): the top 24 bits of SplitMix64's output at seed(name) + index."""
    with numpy.errstate(over="ignore"):
        z = numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        z += numpy.uint64(seed(name))
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z ^= z >> numpy.uint64(31)
    return (z >> numpy.uint64(40)).astype(numpy.float32) / numpy.float32(1 << 23) - numpy.float32(1)


def weight(name: str, shape: tuple[int, ...]) -> numpy.ndarray:
    """Returns a weight by its state_dict name, scaled so that activations stay near one in a network of any depth."""
    values = uniform(name, int(numpy.prod(shape)))
    if len(shape) > 1:  # He initialisation: keeps the variance through ReLU.
        fan_in = int(numpy.prod(shape[1:]))
        values *= numpy.float32(numpy.sqrt(6.0 / fan_in))
    elif name.endswith("running_var"):
        values = values * numpy.float32(0.5) + numpy.float32(1)
    elif name.endswith("weight"):  # The scale of a normalisation.
        values = values * numpy.float32(0.25) + numpy.float32(0.5)
    elif name == "fc.bias":  # Keeps every logit away from zero, where a relative error means nothing.
        values += numpy.float32(2.5)
    else:
        values *= numpy.float32(0.125)
    return values.reshape(shape)


def images(count: int) -> numpy.ndarray:
    """Returns images as `count,3,224,224,f32` in [-2, 2): squares of 32 by 32 pixels of one colour.

    With per-pixel noise a network would only see the mean.
    """
    squares = 2 * uniform("images", count * 3 * 7 * 7).reshape(count, 3, 7, 7)
    return squares.repeat(32, axis=2).repeat(32, axis=3)


def integers(name: str, shape: tuple[int, ...], count: int) -> numpy.ndarray:
    """Returns integers from 0 to below `count`, as i64."""
    scaled = (uniform(name, int(numpy.prod(shape))).astype(numpy.float64) + 1) / 2 * count
    return numpy.floor(scaled).astype(numpy.int64).reshape(shape)
