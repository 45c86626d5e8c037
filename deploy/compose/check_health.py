"""Exit code 0 where the page at PMF_HEALTH_URL answers, or none is named."""

import os
import sys
import urllib.request

url = os.environ.get("PMF_HEALTH_URL")
if url:
    with urllib.request.urlopen(url, timeout=8) as answer:
        sys.exit(answer.status != 200)
