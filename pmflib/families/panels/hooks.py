"""What panels add to the core and to lower wings."""

HOOKS = {"information": {"panels": "pmflib.families.panels.information:ChainInformation"}}
