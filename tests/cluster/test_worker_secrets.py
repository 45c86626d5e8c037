"""Workers on this machine obey the run that started them, and nobody else."""

import asyncio
import logging
import stat
import urllib.request
from pathlib import Path

import psutil
import pytest
from distributed.core import connect
from distributed.security import Security

from pmflib.cluster import open_client, start_workers
from pmflib_tasks.config import ClusterConfig


def list_ports():
    """Addresses that this process and its children listen on, beside those of the machine's other work."""
    here = psutil.Process()
    return {
        (each.laddr.ip, each.laddr.port)
        for process in (here, *here.children(recursive=True))
        for each in process.net_connections("inet")
        if each.status == psutil.CONN_LISTEN
    }


async def try_to_stop(address, security):
    """Ask a scheduler to end, as anybody could who reaches its port."""
    arguments = security.get_connection_args("client")
    link = await connect(address, timeout=3, **arguments)
    await link.write({"op": "terminate"})
    return await link.read()


def test_start_workers__threads_listen_on_no_port():
    before = list_ports()
    with start_workers(ClusterConfig(workers=2)) as address, open_client(address) as client:
        (scratch,) = {
            worker["local_directory"] for worker in client.scheduler_info()["workers"].values()
        }
        assert stat.S_IMODE(Path(scratch).parents[1].stat().st_mode) == 0o700
        assert client.submit(len, [1, 2]).result() == 2
        assert list_ports() == before


@pytest.mark.slow
def test_start_workers__processes_refuse_clients_without_the_key():
    before = list_ports()
    with start_workers(ClusterConfig(workers=1, processes=True)) as address:
        with open_client(address) as client:
            assert client.submit(len, [1, 2]).result() == 2
        logging.getLogger("distributed.comm.tcp").setLevel(logging.CRITICAL)
        plain = address.replace("tls", "tcp")
        for target, security in ((plain, Security()), (address, Security.temporary())):
            with pytest.raises(OSError, match=r"timed out|closed|certificate"):
                asyncio.run(try_to_stop(target, security))
        with open_client(address) as client:
            assert client.submit(len, [1, 2]).result() == 2
        ports = list_ports() - before
        assert {ip for ip, _ in ports} == {"127.0.0.1"}
        for _, port in ports:
            for page in ("status", "info/main/workers.html", "metrics", "json/counts.json"):
                with pytest.raises(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5)
