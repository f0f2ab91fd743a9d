"""What `@hf.job` declares: job types, how their payloads are typed, and the registry of an app."""
