"""Kernels written in LLVM's intermediate language; see docs/kernels.md."""
