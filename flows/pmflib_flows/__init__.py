"""Prefect flows and the command line."""

from pmflib_flows.blas_threads import use_one_thread

# before anything imports NumPy, which reads the environment at import
use_one_thread()
