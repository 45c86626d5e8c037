"""Automations of Prefect that report runs which need a person: failed, crashed, late, held back.

    python deploy/automations.py webhook/night-watch

The argument names a block of the server, by type and name: a webhook, or a block that sends notifications, as
slack-webhook or sendgrid-email. Run again after a change: an automation that is there is replaced.
"""

from __future__ import annotations

import argparse
from uuid import UUID

from prefect import get_client
from prefect.automations import AutomationCore, EventTrigger
from prefect.client.orchestration import SyncPrefectClient
from prefect.events.actions import CallWebhook, SendNotification
from prefect.exceptions import ObjectNotFound

TAG = "pmf"
"""Runs of deployments with this tag are watched: see `deploy/prefect.yaml`."""

STATES = {
    "failed": ("Failed", "TimedOut"),
    "crashed": ("Crashed",),
    "late": ("Late",),
    "held back": ("HeldBack",),
}
"""Names of the states of a flow run that each automation waits for."""

PAYLOAD = (
    '{"run": {{ flow_run.name | tojson }}, "state": {{ flow_run.state.name | tojson }}, '
    '"message": {{ flow_run.state.message | tojson }}, "page": {{ flow_run | ui_url | tojson }}}'
)
"""What a webhook is called with: JSON."""
SUBJECT = "pmf: {{ flow_run.name }} is {{ flow_run.state.name }}"
BODY = "{{ flow_run.state.message }}\n{{ flow_run | ui_url }}"
"""What a notification says."""


def make_automation(name: str, action: CallWebhook | SendNotification) -> AutomationCore:
    """Automation that acts once for every run that comes into one of its states."""
    return AutomationCore(
        name=f"pmf {name}",
        description=f"A run of pmf is {name}; deploy/README.md says what to do",
        trigger=EventTrigger(
            expect={f"prefect.flow-run.{state}" for state in STATES[name]},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related={
                "prefect.resource.role": "tag",
                "prefect.resource.id": f"prefect.tag.{TAG}",
            },
            for_each={"prefect.resource.id"},
        ),
        actions=[action],
    )


def make_action(client: SyncPrefectClient, block: str) -> CallWebhook | SendNotification:
    """Action that uses a block."""
    slug, _, name = block.partition("/")
    found: UUID = client.read_block_document_by_name(name, slug).id
    if slug == "webhook":
        return CallWebhook(block_document_id=found, payload=PAYLOAD)
    return SendNotification(block_document_id=found, subject=SUBJECT, body=BODY)


def main() -> None:
    """Create the automations, or replace them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("block", help="TYPE/NAME, as `prefect block ls` shows them")
    block = parser.parse_args().block
    with get_client(sync_client=True) as client:
        try:
            action = make_action(client, block)
        except ObjectNotFound:
            parser.error(
                f"block {block!r} is not on the server; `prefect block ls` lists those that are"
            )
        for name in STATES:
            automation = make_automation(name, action)
            known = client.read_automations_by_name(automation.name)
            client.create_automation(automation)
            for each in known:
                client.delete_automation(each.id)
            print(f"{automation.name}: {'replaced' if known else 'created'}")


if __name__ == "__main__":
    main()
