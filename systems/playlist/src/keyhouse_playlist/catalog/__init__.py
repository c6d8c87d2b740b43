"""The catalog as the service uses it: searches, and refreshes from a file or a MediaCMS."""
