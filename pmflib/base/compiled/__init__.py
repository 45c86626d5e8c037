"""What compiled loops share: vectors in LLVM's intermediate language, and code kept on disk; see docs/kernels.md."""
