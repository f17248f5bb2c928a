"""What is measured, how, and the recorded results; see README.md here."""
