"""States of healthy processes, for tests to change one of."""

from dataclasses import replace

from pmflib.core.machine import MachineMemory
from pmflib_tasks.operations.doctor.probes import FolderState
from pmflib_tasks.operations.doctor.processes import LinearAlgebra, ProcessState
from pmflib_tasks.operations.doctor.storage import SourceState, WorkerView

VERSIONS = {
    "python": "3.11.7",
    "pmflib": "0.2.0",
    "numpy": "2.4.6",
    "scipy": "1.17.1",
    "numba": "0.68.1",
    "dask": "2026.8.0",
    "distributed": "2026.8.0",
    "zarr": "3.1.6",
    "pyarrow": "26.0.1",
    "obstore": "",
    "cloudpickle": "3.1.2",
    "msgpack": "1.2.4",
}
PROCESS = ProcessState(
    host="one",
    versions=VERSIONS,
    processors=4,
    quota=0.0,
    memory=MachineMemory(8 << 30, 1 << 28, 1 << 63),
    container_memory=0,
    linear_algebra=(LinearAlgebra("openblas", "0.3.30", 1),),
    encoding=("utf-8", "UTF-8"),
    open_files=65536,
)
FOLDER = FolderState("/data/store", "/data/store", "ext4", 50 << 30)
SOURCES = SourceState(2, 1 << 20, "d1")
VIEW = WorkerView(PROCESS, FOLDER, FOLDER, "", "", "probe", SOURCES)


def with_versions(**changed):
    return VERSIONS | changed


def with_process(**changed):
    return replace(PROCESS, **changed)


def with_view(**changed):
    return replace(VIEW, **changed)


def states_of(lines):
    return [line.state for line in lines]
