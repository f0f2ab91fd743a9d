"""The operators' routes: everything about jobs, for keys with the scope `operate` or `admin`."""
