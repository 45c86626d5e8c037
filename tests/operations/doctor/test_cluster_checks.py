import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from distributed.versions import BOKEH_REQUIREMENT

from pmflib_tasks.operations.doctor.cluster_checks import (
    check_clocks,
    check_connections,
    check_dashboard,
    check_scheduler,
    check_worker_states,
)
from pmflib_tasks.operations.doctor.clusters import try_page, try_port
from pmflib_tasks.operations.doctor.encryption import CertificateState, check_encryption, is_open
from tests.operations.doctor.health_cases import states_of

ADDRESS = "tcp://10.0.0.1:8786"


def test_check_scheduler__silent():
    assert check_scheduler(ADDRESS, "").state == "ok"
    line = check_scheduler(ADDRESS, "Connection refused")
    assert (line.state, line.fault) == ("FAIL", "infrastructure")


def test_check_worker_states__none_silent_and_paused():
    assert states_of(check_worker_states(ADDRESS, {"a": "running"}, {})) == ["ok"]
    (line,) = check_worker_states(ADDRESS, {}, {})
    assert line.state == "FAIL"
    assert line.found.startswith("0 workers at tcp://10.0.0.1:8786")
    lines = check_worker_states(
        ADDRESS, {"a": "running", "b": "paused"}, {"a": "No module named 'pmflib'"}
    )
    assert states_of(lines) == ["FAIL", "warn"]
    assert "1 of 2 cannot say what they see: a (No module named 'pmflib')" in lines[0].found


def test_check_worker_states__lists_a_few_of_many():
    states = {str(n): "running" for n in range(9)}
    (line,) = check_worker_states(ADDRESS, states, dict.fromkeys(states, "lost"))
    assert line.found.endswith("0 (lost), 1 (lost), 2 (lost) and 6 more")


def test_check_connections__one_that_cannot():
    assert states_of(check_connections({}, 4)) == ["ok"]
    assert check_connections({}, 0) == []
    (line,) = check_connections({"a from b": "timed out"}, 4)
    assert (line.state, line.fault) == ("FAIL", "infrastructure")
    assert "1 of 4" in line.found


def test_check_dashboard__there_behind_a_wall_and_not_served():
    assert check_dashboard("http://h:8787/status", "").state == "ok"
    assert check_dashboard("http://h:8787/status", "Connection refused").state == "warn"
    assert check_dashboard("", "").state == "ok"
    lacking = check_dashboard("http://h:8787/status", "the scheduler has no bokeh>=3.1.0")
    assert (lacking.state, "pmflib[dashboard]" in lacking.remedy) == ("warn", True)


def test_check_encryption__open_addresses_and_ends_of_certificates():
    assert states_of(check_encryption([ADDRESS], (), encrypted=False)) == ["warn"]
    assert states_of(check_encryption([], (), encrypted=False)) == ["ok"]
    (line,) = check_encryption([], [CertificateState("scheduler", 200.0)], encrypted=True)
    assert line.found == "TLS, certificates for 200 days"
    found = [
        CertificateState("scheduler", -3.0),
        CertificateState("client", 9.0),
        CertificateState("authority", 0.0, "OSError: gone"),
    ]
    assert states_of(check_encryption([], found, encrypted=True)) == ["FAIL", "warn", "warn"]


def test_check_clocks__a_skew_names_whose_it_is():
    line = check_clocks({"store": 0.2, "scheduler": -0.3, "tcp://a:1": 0.0})
    assert (line.state, line.found) == (
        "ok",
        "store, scheduler, 1 worker: within 0.3 s of this one",
    )
    line = check_clocks({"store": 0.0, "Prefect": -61.0, "tcp://a:1": 17.0})
    assert line.state == "warn"
    assert "Prefect (61 s behind), tcp://a:1 (17 s ahead)" in line.found
    assert check_clocks({}).state == "ok"


def test_is_open__neither_encrypted_nor_on_loopback():
    assert is_open(ADDRESS)
    assert is_open("host:8786")
    for address in ("tls://10.0.0.1:8786", "tcp://127.0.0.1:1", "tcp://[::1]:1", "inproc://x/1"):
        assert not is_open(address)


def test_try_page__one_without_bokeh_shows_nothing():
    """The page of a scheduler without bokeh is as Dask writes it."""
    server = HTTPServer(("127.0.0.1", 0), type("_Pages", (BaseHTTPRequestHandler,), PAGES))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        assert try_page(f"{address}/status") == f"the scheduler has no {BOKEH_REQUIREMENT}"
        assert try_page(f"{address}/other") == "the page is none of a dashboard of Dask"
        assert try_page(f"{address}/none") == "Not Found"
    finally:
        server.shutdown()
        server.server_close()
    assert try_page(f"{address}/status") == "Connection refused"
    assert try_page("") == ""


def answer(handler):
    if handler.path == "/none":
        handler.send_error(404)
        return
    handler.send_response(200)
    handler.end_headers()
    lacking = f"<p>Dask needs {BOKEH_REQUIREMENT} for the dashboard.</p>"
    handler.wfile.write((lacking if handler.path == "/status" else "<p>hello</p>").encode())


PAGES = {"do_GET": answer, "log_message": lambda *args: None}


def test_try_port__what_cannot_be_an_address():
    assert try_port("nonsense") == "the address has no host, or no port"
    assert "Port" in try_port("tcp://a:99999999")
    assert try_port("tcp://127.0.0.1:9")
    assert try_port("inproc://x") == ""
