"""Each engine against its bare driver doing the same durable work: a module for each, with `measure`."""
