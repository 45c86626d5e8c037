"""How many samples a wanted accuracy takes."""

from pmflib.inference.planning.sample_sizes import Asked as Asked
from pmflib.inference.planning.sample_sizes import bound_sample_size as bound_sample_size
from pmflib.inference.planning.sample_sizes import check_accuracy as check_accuracy
from pmflib.inference.planning.sample_sizes import sample_size as sample_size
