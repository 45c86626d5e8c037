"""Variables of runs whose values are Secret blocks of the server: keys of an object store, above all.

    python deploy/secret_variables.py pmf AWS_ACCESS_KEY_ID=object-store-key AWS_SECRET_ACCESS_KEY=object-store-secret

The work pool (`pmf`) gets references, which its worker replaces by the values when a run starts: they are in the run's
process, and in no deployment, run or log. In `deploy/prefect.yaml` the same references would be replaced by
`prefect deploy`, and every deployment would show the values.
"""

from __future__ import annotations

import argparse

from prefect import get_client
from prefect.client.schemas.actions import WorkPoolUpdate
from prefect.exceptions import ObjectNotFound


def refer(block: str) -> str:
    """Reference to the value of a Secret block."""
    return f"{{{{ prefect.blocks.secret.{block} }}}}"


def main() -> None:
    """Add variables to a work pool, or replace those of the same name."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pool", help="a work pool of the server")
    parser.add_argument("variables", nargs="+", metavar="VARIABLE=BLOCK")
    arguments = parser.parse_args()
    pairs = [text.partition("=")[::2] for text in arguments.variables]
    with get_client(sync_client=True) as client:
        for name, block in pairs:
            if not (name and block):
                parser.error(f"{name!r}: VARIABLE=BLOCK is asked for")
            try:
                client.read_block_document_by_name(block, "secret", include_secrets=False)
            except ObjectNotFound:
                parser.error(f"secret block {block!r} is not on the server; see `prefect block ls`")
        try:
            pool = client.read_work_pool(arguments.pool)
        except ObjectNotFound:
            parser.error(
                f"work pool {arguments.pool!r} is not on the server; `prefect work-pool ls`"
            )
        template = pool.base_job_template
        known = template["variables"]["properties"]["env"].setdefault("default", {})
        known |= {name: refer(block) for name, block in pairs}
        client.update_work_pool(pool.name, WorkPoolUpdate(base_job_template=template))
    print(f"{pool.name}: {', '.join(sorted(known))}")


if __name__ == "__main__":
    main()
