"""Tables of the papers, run end to end: trainings side by side, scored, and put beside the paper's numbers."""
