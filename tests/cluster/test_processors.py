"""The same counts on processors with narrower vectors, and where vector code does not compile."""

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

COUNT = """
import numpy as np
from pmflib.counts.kernels.observed import find_observed
from pmflib.counts.kernels.scatter import add_dense
from pmflib.counts.kernels.planes import add_planes, multiply_planes
from pmflib.counts.kernels.scatter import add_tiles

def add_observed(codes, offsets, table):
    add_tiles(*find_observed(codes, offsets), offsets, table)

rng = np.random.default_rng(0)
offsets = np.array([0, 3, 5, 12, 16, 17], np.int64)
codes = np.stack([rng.integers(-1, size, 1500) for size in np.diff(offsets)], axis=1).astype(np.int8)
tables = np.zeros((3, 17, 17), np.int64)
for table, count in zip(tables, (add_dense, add_planes, add_observed)):
    count(codes, offsets, table)
assert tables[0].sum() > 10_000
assert (tables == tables[0]).all()
(assembly,) = multiply_planes.inspect_asm().values()
print("widest", "zmm" if "zmm" in assembly else "ymm" if "ymm" in assembly else "narrow")
"""

SSE2 = "+sse,+sse2,-sse3,-ssse3,-sse4.1,-sse4.2,-popcnt,-avx,-avx2,-avx512f"
AVX2 = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,-avx512f"


def run(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def compile_and_run(program: str, **environment: str) -> str:
    """Run a program in which nothing is compiled yet: code that is loaded cannot be looked at."""
    with tempfile.TemporaryDirectory() as folder:
        return run(program, NUMBA_CACHE_DIR=folder, **environment)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names x86 features")
@pytest.mark.parametrize(("features", "widest"), [(SSE2, "narrow"), (AVX2, "ymm")])
def test_vector_code__narrower_processor(features: str, widest: str) -> None:
    output = compile_and_run(COUNT, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES=features)
    assert output.split() == ["widest", widest]


ARM = r"""
import re
import numpy as np
from llvmlite import binding
from pmflib.counts.kernels.planes import add_planes, multiply_planes, pack_planes

add_planes(np.zeros((600, 3), np.int8), np.array([0, 2, 4, 6]), np.zeros((6, 6), np.int64))
binding.initialize_all_targets()
binding.initialize_all_asmprinters()
target = binding.Target.from_triple("aarch64-linux-gnu")
machine = target.create_target_machine(cpu="generic", opt=1)
for kernel in (multiply_planes, pack_planes):
    (text,) = kernel.inspect_llvm().values()
    # numba counts its references by an x86 instruction; it stays a call here
    text = re.sub(r"llvm\.x86\.", "x86.", text).replace("immarg", "")
    module = binding.parse_assembly(re.sub(r'"target-(cpu|features)"="[^"]*"', "", text))
    module.triple = "aarch64-linux-gnu"
    module.data_layout = str(machine.target_data)
    assembly = machine.emit_assembly(module)
    print(*(assembly.count(f"\t{name}\t") for name in ("cnt", "cmeq")))
"""


def test_vector_code__becomes_arm_vector_instructions() -> None:
    products, packing = (line.split() for line in compile_and_run(ARM).splitlines())
    # 16 pairs of planes by 8 words are 64 vectors of 16 bytes to count ones of
    assert int(products[0]) == 64
    assert int(packing[1]) >= 4


PLAIN = """
import sys
import numpy as np
from pmflib.counts import block_counting
from pmflib.base.blocks import DenseBlock
from pmflib.counts.block_counting import add_block

block_counting.COMPILE_NS.update(planes=0, tiles=0)
table = np.zeros((60, 60), np.int64)
block = DenseBlock(np.zeros((20_000, 20), np.int8))
print(block_counting.choose_method(block, np.arange(21) * 3))
add_block(block, np.arange(21) * 3, table)
assert table[0, 0] == table[0, 57] == 20_000
print("pmflib.counts.kernels.planes" in sys.modules)
"""


def test_choose_method__plain_kernels_asked_for() -> None:
    assert run(PLAIN, PMF_PLAIN_KERNELS="1").split() == ["scatter", "False"]
    assert run(PLAIN, PMF_PLAIN_KERNELS="").split() == ["planes", "True"]


SMALL = """
import sys
import numpy as np
from pmflib.counts.pair_counts import count_pairs

counts = count_pairs(np.zeros((50_000, 20), np.int8), [3] * 20)
assert counts.to_dense()[0, 57] == 50_000
print(sorted(name for name in sys.modules if ".kernels." in name or name.startswith("pmflib.base.compiled.")))
"""


def test_count_pairs__small_job_compiles_the_plain_scatter_alone() -> None:
    loaded = [
        "pmflib.base.compiled.saved_code",
        "pmflib.counts.kernels.readiness",
        "pmflib.counts.kernels.scatter",
    ]
    assert compile_and_run(SMALL).strip() == str(loaded)
