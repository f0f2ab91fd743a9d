"""Remote workers: two reference workers, and the handlers that `holdfast conform` tries."""
