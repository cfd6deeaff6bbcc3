"""Opened before anything heavy is imported, so that one place fixes what every process of the study has in common."""

import logging
import os

# The same products, to the last bit, on every machine of one kind: threads split sums, and on a shared
# machine a second thread costs more than it brings.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"

for _name, _value in {
    "HF_HUB_OFFLINE": "1",  # the study needs no hub; a missing folder must fail at once, not after retries
    "TOKENIZERS_PARALLELISM": "false",  # the cookbook forks and threads around the tokenizer
    "TINKER_TELEMETRY": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}.items():
    os.environ.setdefault(_name, _value)

# The cookbook reports each step in a page of its own; the study keeps what is worth keeping in files.
logging.getLogger("tinker_cookbook").setLevel(logging.WARNING)
