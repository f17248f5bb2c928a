"""What measures found, as JSON, Markdown and a page; and several spaces side by side."""
