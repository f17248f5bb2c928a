"""Text in: sources, corpora, tokenizers, batches."""
