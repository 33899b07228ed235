"""Makes the shards that the tests of HDF5 datasets read, with the layouts that h5py writes: python3 make.py, with h5py 3 and numpy.

Element j of `ids` in sample i of all shards is 100 i + j.
"""

import h5py
import numpy

SAMPLES = 5
FIRST = 0


def shard(name, options, dtypes, **file_options):
    global FIRST
    rows = numpy.arange(FIRST, FIRST + SAMPLES)
    FIRST += SAMPLES
    arrays = {
        "ids": 100 * rows[:, None] + numpy.arange(4),
        "weights": rows[:, None] / 4,
        "labels": rows % 2,
    }
    with h5py.File(name, "w", track_order=False, **file_options) as file:
        for (key, values), dtype in zip(arrays.items(), dtypes):
            extra = {"maxshape": (None, *values.shape[1:])} if options.get("chunks") else {}
            file.create_dataset(key, data=values.astype(dtype), track_times=False, **options, **extra)


shard("a.hdf5", {}, ["<i4", "<f4", "i1"])
shard("b.hdf5", {"chunks": True, "compression": "gzip", "shuffle": True}, ["<i4", "<f4", "i1"])
shard("c.h5", {"chunks": True, "compression": "gzip", "fletcher32": True}, [">i4", ">f4", "i1"], libver="latest")
