"""Each engine against its bare driver doing the same durable work: one module each, with `measure`."""
