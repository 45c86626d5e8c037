"""Programs that measure: ``python -m benchmarks.FOLDER.PROGRAM`` from the root of the checkout; README.md lists them.

Importing the package limits every library to one thread, before NumPy loads: what is compared is work, not threads.
"""

import os

os.environ.update(
    OMP_NUM_THREADS="1",
    OPENBLAS_NUM_THREADS="1",
    MKL_NUM_THREADS="1",
    NUMBA_NUM_THREADS="1",
    POLARS_MAX_THREADS="1",
)
