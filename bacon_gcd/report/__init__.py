"""What was found, as one page that opens from disk: `page.write_report(data, path)`."""
