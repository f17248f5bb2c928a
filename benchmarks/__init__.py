"""What is measured, how, and the recorded results; see README.md here."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is imported: threads that spin slow each other down
