"""What moves jobs that wait: a leader, and its duties. Every duty is correct with two leaders."""
