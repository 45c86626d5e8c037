"""Label logs: the command and its flow."""

from pmflib_flows.crowd.crowd import hand_over as hand_over
