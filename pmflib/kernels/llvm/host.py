"""The processor that LLVM makes code for."""

from llvmlite import binding

VECTORS = ("avx512f", "avx2", "avx", "neon", "sse4.2")
"""Instruction sets of vectors, widest first, by the names of LLVM."""


def describe_processor() -> tuple[str, str]:
    """Name of this machine's processor, and its widest instruction set of ``VECTORS``, "" where it has none of them."""
    features = binding.get_host_cpu_features()
    return binding.get_host_cpu_name(), next((each for each in VECTORS if features.get(each)), "")
