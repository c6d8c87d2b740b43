"""Jobs: work on more records than one commit holds, which a kill neither repeats nor loses."""
