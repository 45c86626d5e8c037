"""The commands of `pmf`, grouped by subject."""

from pmflib_flows.commands.history import find_recorded_name as find_recorded_name
from pmflib_flows.commands.history import find_run as find_run
from pmflib_flows.commands.live_model import Data as Data
from pmflib_flows.commands.live_model import Keep as Keep
from pmflib_flows.commands.live_model import Output as Output
from pmflib_flows.commands.live_model import check_answer_output as check_answer_output
from pmflib_flows.commands.live_model import print_answer as print_answer
from pmflib_flows.commands.live_model import publish_answer as publish_answer
from pmflib_flows.commands.live_model import publish_results as publish_results
from pmflib_flows.commands.rejects import quarantine as quarantine
